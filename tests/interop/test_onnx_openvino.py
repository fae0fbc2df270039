"""Export to OpenVINO, for models of all kinds; its own runtime computes the comparison."""

import json
from pathlib import Path

import numpy as np
import pytest

from maskwright.interop.comparison import pad_rows
from maskwright.interop.export import export
from maskwright.interop.onnx import OPENVINO as FILE
from maskwright.model_folder.folder import open_model
from tests.interop.models import PRESETS, encode, write_model


@pytest.mark.parametrize("preset", PRESETS)
def test_openvino_computes_the_logits_of_sizes_that_were_not_traced(preset: str, tmp_path: Path):
    openvino = pytest.importorskip("openvino")
    folder = write_model(tmp_path / "model", PRESETS[preset])
    result = export(folder, "openvino", tmp_path / "out")
    assert result.comparison.largest <= 1e-5
    assert set(result.files) >= {FILE, "openvino_model.bin", "config.json", "tokenizer.json"}
    assert not list((tmp_path / "out").glob("*.onnx*"))
    assert json.loads((tmp_path / "out/export.json").read_text())["to"] == "openvino"
    precision = {"INFERENCE_PRECISION_HINT": "f32"}  # new CPUs compute in bf16 without it
    compiled = openvino.Core().compile_model(tmp_path / "out" / FILE, "CPU", precision)
    loaded = open_model(folder)
    for lengths in ([1], [2, 7, 1], [40, 3, 30, 9]):
        batch = pad_rows([[5 + position % 50 for position in range(n)] for n in lengths], 0)
        real = batch[1].bool()
        ours = loaded.model.head(encode(loaded, batch)[real]).detach().numpy()
        inputs = zip(("input_ids", "attention_mask"), batch, strict=True)
        theirs = compiled({name: one.numpy() for name, one in inputs})["logits"]
        np.testing.assert_allclose(theirs[real.numpy()], ours, atol=1e-5, rtol=0)
