"""The model as an ONNX graph with open sizes, and onnxruntime to run it.

Inputs ``input_ids`` and ``attention_mask`` (int64 [B, L]; of a classifier that knows types also
``token_type_ids``), output ``logits`` (fp32 [B, L, V], [B, K] of texts, [B, L, K] of tokens): the
names that optimum and transformers.js look for.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.interop.libraries import import_library, quiet
from maskwright.interop.padded_model import PaddedClassifier, PaddedModel
from maskwright.model.classifier import Classifier
from maskwright.model.pretraining import MaskedLanguageModel

GRAPH = "model.onnx"
OUTPUT = "logits"
# The first with attention and RMSNorm as operators: on long rows a tenth to a quarter faster than
# 18 or 20 in onnxruntime, which knows it since 1.23.
OPSET = 23
# The file of a graph cannot pass 2 GiB; weights of more than this go into a file beside it.
MOST_BYTES_WITHIN = 1 << 30
_NEEDED_BY = "an export to ONNX"


def write_graph(path: Path, model: MaskedLanguageModel | Classifier) -> None:
    """Writes the graph of `model`; very large weights come beside it, in ``PATH.data``.

    Raises:
        InputError: a package of the extra `onnx` is missing.
    """
    for module in ("onnx", "onnxscript"):
        import_library(module, "onnx", _NEEDED_BY)
    size = sum(parameter.nbytes for parameter in model.parameters())
    padded = PaddedClassifier(model) if isinstance(model, Classifier) else PaddedModel(model)
    # Not one tensor several times: the trace would take the inputs for the same one.
    example = tuple(torch.ones((3, 5), dtype=torch.int64) for _ in padded.inputs)
    sizes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length")}
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            padded.eval(),
            example,
            input_names=padded.inputs,
            output_names=[OUTPUT],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(padded.inputs, sizes),
            verbose=False,
        )
        assert program is not None  # torch gives None only if it writes the file itself
        program.save(path, external_data=size > MOST_BYTES_WITHIN)


class OnnxModel:
    """A graph, ready to run on the CPU: ``model(input_ids, attention_mask)`` -> logits.

    Token types are a third argument; a graph that has no such input takes no notice of them.

    Raises:
        InputError: onnxruntime is missing.
    """

    def __init__(self, path: Path) -> None:
        runtime = import_library("onnxruntime", "onnx", _NEEDED_BY)
        options: Any = runtime.SessionOptions()
        options.log_severity_level = 3  # errors
        self.session: Any = runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

        self.inputs: list[str] = [one.name for one in self.session.get_inputs()]

    def __call__(self, *tensors: Tensor) -> Tensor:
        inputs = {name: one.numpy() for name, one in zip(self.inputs, tensors, strict=False)}
        [logits] = self.session.run([OUTPUT], inputs)
        return torch.from_numpy(logits)
