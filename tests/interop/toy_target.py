"""An export target in one file, which a test registers with one line: a copy of the folder."""

from pathlib import Path

import torch

from maskwright.interop.classifier_source import Source
from maskwright.interop.onnx import build_padded
from maskwright.interop.targets import Written
from maskwright.interop.vector_source import VectorSource
from maskwright.model_folder.folder import load_model


def write(folder: Path, source: Source) -> Written:
    assert not isinstance(source, VectorSource), "logits are compared"
    source.save(folder)
    copy, _ = load_model(folder)
    with torch.no_grad():
        return Written(source.compare(build_padded(copy)), notes=("a toy",))
