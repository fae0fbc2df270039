"""Checkpoints: all that a run needs to go on, and nothing that has to be unpickled.

``checkpoints/step_00001200/`` holds tensors as safetensors, the counts of `TrainState` as
``state.json`` and, written last, ``manifest.json`` with the sha256 of every file. A checkpoint
appears under its name by one rename, so one that can be seen is whole; the hashes find the ones
that were damaged afterwards, and then the checkpoint before it is used.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from maskwright.errors import CheckpointError
from maskwright.files import hash_file, replacing_folder, write_json

_MANIFEST, _STATE = "manifest.json", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at one step.

    Attributes:
        tensors: by group (``model``, ``optimizer``, ``average``) and name.
        state: plain values.
    """

    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Writes ``folder/step_N`` and keeps the `keep` newest checkpoints up to this one.

    A checkpoint of a later step can only be one that was found damaged when the run was resumed,
    so it goes, too; and so does what an interrupted save has left.
    """
    path = folder / f"step_{step:08d}"
    with replacing_folder(path) as temporary:
        for group, values in tensors.items():
            contiguous = {name: t.detach().cpu().contiguous() for name, t in values.items()}
            save_file(contiguous, temporary / f"{group}.safetensors")
        write_json(temporary / _STATE, state)
        names = sorted(file.name for file in temporary.iterdir())
        write_json(temporary / _MANIFEST, {name: hash_file(temporary / name) for name in names})
    present = list_checkpoints(folder)
    kept = [checkpoint for checkpoint in present if checkpoint <= path][-keep:]
    for abandoned in [*folder.glob(".step_*"), *(old for old in present if old not in kept)]:
        shutil.rmtree(abandoned)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads one checkpoint.

    Raises:
        CheckpointError: a file is missing or is not what was written.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        for name, digest in manifest.items():
            if hash_file(path / name) != digest:
                raise CheckpointError(f"{path / name} is damaged: its sha256 is not the one saved")
        groups = [name for name in manifest if name.endswith(".safetensors")]
        tensors = {Path(name).stem: load_file(path / name) for name in groups}
        return Checkpoint(tensors, json.loads((path / _STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, or None where there is none; and what was found damaged."""
    complaints: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return load_checkpoint(path), complaints
        except CheckpointError as error:
            complaints.append(str(error))
    return None, complaints
