"""The model as an ONNX graph with open sizes, and onnxruntime to run it.

Inputs ``input_ids`` and ``attention_mask`` (int64 [B, L]), output ``logits`` (fp32 [B, L, V]): the
names that optimum and transformers.js look for.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.interop.libraries import import_library, quiet
from maskwright.interop.padded_model import PaddedModel
from maskwright.model.pretraining import MaskedLanguageModel

GRAPH = "model.onnx"
INPUTS, OUTPUT = ("input_ids", "attention_mask"), "logits"
# The first with attention and RMSNorm as operators: on long rows a tenth to a quarter faster than
# 18 or 20 in onnxruntime, which knows it since 1.23.
OPSET = 23
# The file of a graph cannot pass 2 GiB; weights of more than this go into a file beside it.
MOST_BYTES_WITHIN = 1 << 30
_NEEDED_BY = "an export to ONNX"


def write_graph(path: Path, model: MaskedLanguageModel) -> None:
    """Writes the graph of `model`; very large weights come beside it, in ``PATH.data``.

    Raises:
        InputError: a package of the extra `onnx` is missing.
    """
    for module in ("onnx", "onnxscript"):
        import_library(module, "onnx", _NEEDED_BY)
    size = sum(parameter.nbytes for parameter in model.parameters())
    # Two tensors, not one twice: the trace would take the two inputs for the same one.
    example = (torch.ones((3, 5), dtype=torch.int64), torch.ones((3, 5), dtype=torch.int64))
    sizes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length")}
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            PaddedModel(model).eval(),
            example,
            input_names=INPUTS,
            output_names=[OUTPUT],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=dict.fromkeys(INPUTS, sizes),
            verbose=False,
        )
        assert program is not None  # torch gives None only if it writes the file itself
        program.save(path, external_data=size > MOST_BYTES_WITHIN)


class OnnxModel:
    """A graph, ready to run on the CPU: ``model(input_ids, attention_mask)`` -> logits.

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

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        inputs = (input_ids.numpy(), attention_mask.numpy())
        [logits] = self.session.run([OUTPUT], dict(zip(INPUTS, inputs, strict=True)))
        return torch.from_numpy(logits)
