"""Export to OpenVINO: the ONNX graph in its intermediate representation, with weights in fp32.

Files, inputs and the output have the names that optimum-intel reads.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.interop.libraries import import_library, quiet
from maskwright.interop.onnx import GRAPH, OUTPUT, build_padded, write_frame, write_graph
from maskwright.interop.targets import Source, Target, Written

FILE = "openvino_model.xml"  # and openvino_model.bin, the weights
OPSET = 20  # the latest without operators that OpenVINO cannot read
_NEEDED_BY = "an export to openvino"
_CARD = """
A graph for OpenVINO with dynamic sizes. Inputs: {inputs} [batch, length]. Output: `logits` {shape}.
The tokenizer is in the same folder.

```python
import numpy, openvino, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
encoded = tokenizer.encode("{text}")
inputs = {{{encodings}}}
inputs = {{name: numpy.array([ids]) for name, ids in inputs.items()}}
precision = {{"INFERENCE_PRECISION_HINT": "f32"}}  # CPUs with AMX compute in bf16 without it
logits = openvino.Core().compile_model("{graph}", "CPU", precision)(inputs)["logits"]
```
"""


def write(folder: Path, source: Source) -> Written:
    """Write the graph with configuration, tokenizer and card, and compare logits in OpenVINO.

    Raises:
        MissingPackageError: a package of the extra `openvino` is missing.
    """
    library: Any = import_library("openvino", "openvino", _NEEDED_BY)
    write_frame(folder, source, FILE, "openvino", _CARD)
    graph = folder / GRAPH
    write_graph(graph, source.model, OPSET)
    with quiet():
        library.save_model(library.convert_model(graph), folder / FILE, compress_to_fp16=False)
    for path in folder.glob(f"{GRAPH}*"):
        path.unlink()
    # CPUs with AMX compute in bf16 by default.
    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = library.Core().compile_model(folder / FILE, "CPU", precision)
    names = build_padded(source.model).inputs

    def compute(*tensors: Tensor) -> Tensor:
        inputs = {name: one.numpy() for name, one in zip(names, tensors, strict=False)}
        return torch.from_numpy(compiled(inputs)[OUTPUT].copy())

    return Written(source.compare(compute))


TARGET = Target(("openvino", "onnx", "torch"), write)
