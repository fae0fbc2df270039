"""ONNX graphs: torch needs seconds to trace one, so tests with the same model share it."""

import hashlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Let exports of a model trace it only if its graph was not written in this session."""
    from maskwright.interop import onnx, onnx_int8

    base, real = tmp_path_factory.getbasetemp(), onnx.write_graph
    graphs = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "graphs"
    graphs.mkdir(exist_ok=True)

    def write_once(path: Path, model: Any, opset: int = onnx.OPSET) -> None:
        settings = (path.name, opset, onnx.MAX_BYTES_WITHIN)
        configs = (type(model), model.config, getattr(model, "head_config", None))
        digest = hashlib.sha256(repr((settings, configs)).encode())
        for weights in model.state_dict().values():
            digest.update(weights.numpy().tobytes())
        written = graphs / digest.hexdigest()
        if not written.exists():
            folder = tmp_path_factory.mktemp("graph")
            real(folder / path.name, model, opset)
            try:
                folder.rename(written)
            except OSError:  # another process was first
                assert written.exists()
        shutil.copytree(written, path.parent, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        for module in (onnx, onnx_int8):
            patch.setattr(module, "write_graph", write_once)
        yield
