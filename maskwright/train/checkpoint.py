"""Checkpoints: everything that a run needs to resume, without pickles.

``checkpoints/step_00001200/`` holds tensors as safetensors (one file, or one for each rank if they
are sharded), the counts of `TrainState` and the sums of `LogWindow` as ``state.json`` and, written
last, ``manifest.json`` with the sha256 of every file. A checkpoint gets its name by one rename, so
a visible checkpoint is complete. The hashes detect later damage; then the previous one is used.

Rank 0 writes one file for all ranks, or each rank writes its own.
"""

import math
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maskwright.distributed.parallel import UNSHARDED, Sharding
from maskwright.distributed.world import World, open_channel
from maskwright.errors import CheckpointError
from maskwright.files import (
    hash_file,
    read_json,
    replacing_folder,
    restore_folder,
    temporary_path,
    write_json,
)

WHOLE = "tensors.safetensors"
_MANIFEST, _STATE, _SUFFIX = "manifest.json", "state.json", ".safetensors"
_NAME = re.compile(r"step_(\d{8,15})")
_MAX_JSON_BYTES = 16 << 20


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of one step.

    Attributes:
        path: its folder.
        state: plain values.
        shapes: shapes of the tensors, by name.
    """

    path: Path
    state: dict[str, Any]
    shapes: dict[str, torch.Size]

    @property
    def step(self) -> int:
        return int(self.path.name.removeprefix("step_"))

    def read_into(self, tensors: Mapping[str, Tensor], sharding: Sharding = UNSHARDED) -> None:
        """Fill tensors in place, by name; a rank reads only its own shards.

        Raises:
            CheckpointError: a tensor is missing, or has another shape.
        """
        for name, tensor in tensors.items():
            found = self.shapes.get(name)
            if found != tensor.shape:
                what = "is missing" if found is None else f"has shape {tuple(found)}"
                raise CheckpointError(
                    f"{self.path}: {name} {what}, the model's is {tuple(tensor.shape)}"
                )
        if (self.path / WHOLE).is_file():
            with torch.no_grad(), safe_open(self.path / WHOLE, framework="pt") as file:
                for name, tensor in tensors.items():
                    tensor.copy_(sharding.shard(file.get_tensor(name), tensor))
        else:
            _read_shards(self.path, tensors)


def _read_shards(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Read a sharded checkpoint; the number of ranks may differ from that of the writers."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")  # one process is enough
        targets = {name: tensor.detach() for name, tensor in tensors.items()}
        load(targets, storage_reader=HuggingFaceStorageReader(str(path)))


def describe_lost_folder(run: Path) -> str:
    """Return the message for a run directory that was removed, renamed or replaced."""
    return (
        f"{run} was removed, renamed or replaced during training, so nothing more can be saved in "
        "it. If you renamed it, resume it under its new name; if not, start it again under another "
        "--name"
    )


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return folder / f"step_{step:08d}"


def seal(temporary: Path, state: Mapping[str, Any]) -> None:
    """Write state and manifest beside the tensors, before the folder is renamed."""
    write_json(temporary / _STATE, state)
    names = sorted(file.name for file in temporary.iterdir())
    write_json(temporary / _MANIFEST, {name: hash_file(temporary / name) for name in names})


def keep_newest(path: Path, keep: int) -> None:
    """Delete all checkpoints beside `path` but the `keep` newest ones up to it.

    A checkpoint of a later step can only be one that was damaged when the run was resumed, so it is
    deleted, too; so are the remains of interrupted saves.
    """
    present = list_checkpoints(path.parent)
    kept = present[: present.index(path) + 1][-keep:]
    abandoned = (old for old in present if old not in kept)
    for folder in (*path.parent.glob(".step_*"), *abandoned):
        shutil.rmtree(folder)


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first, without links and other folders."""
    for interrupted in folder.glob(".step_*.old"):
        restore_folder(folder / interrupted.name.removeprefix(".").removesuffix(".old"))
    found = {path: _NAME.fullmatch(path.name) for path in folder.glob("step_*")}
    steps = {path: int(match[1]) for path, match in found.items() if match}
    ours = [path for path in steps if path.is_dir() and not path.is_symlink()]
    return sorted(ours, key=steps.__getitem__)


def find_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest undamaged checkpoint, or None, and messages about damaged ones."""
    complaints: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            verify_checkpoint(path)
            return open_checkpoint(path), complaints
        except CheckpointError as error:
            complaints.append(str(error))
    return None, complaints


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError unless the files and their hashes are those of the manifest."""
    try:
        manifest = read_json(path / _MANIFEST, _MAX_JSON_BYTES)
        present = {file.name for file in path.iterdir()} - {_MANIFEST}
        for name in sorted(set(manifest) ^ present):
            what = "is missing" if name in manifest else "is not in its manifest"
            raise CheckpointError(f"{path} is damaged: {name} {what}")
        for name, digest in manifest.items():
            if hash_file(path / name) != digest:
                raise CheckpointError(f"{path / name} is damaged: its sha256 is not the one saved")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def open_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint without its tensors; raise CheckpointError if that fails."""
    try:
        state = read_json(path / _STATE, _MAX_JSON_BYTES)
        if not isinstance(state, dict):
            raise ValueError(f"{_STATE} does not hold counts")
        return Checkpoint(path, state, _read_shapes(path))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _read_shapes(path: Path) -> dict[str, torch.Size]:
    if (path / WHOLE).is_file():
        with safe_open(path / WHOLE, framework="pt") as file:
            names = list(file.keys())
            return {name: torch.Size(file.get_slice(name).get_shape()) for name in names}
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    found = HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    tensors = {name: t for name, t in found.items() if isinstance(t, TensorStorageMetadata)}
    for name, tensor in tensors.items():
        present = sum(math.prod(chunk.sizes) for chunk in tensor.chunks)
        if present != tensor.size.numel():
            raise ValueError(f"{name} has {present} of its {tensor.size.numel()} numbers")
    return {name: tensor.size for name, tensor in tensors.items()}


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
    write: Callable[[Path, Path, dict[str, Tensor]], None] | None = None,
) -> Path:
    """Write ``folder/step_N`` and keep the `keep` newest checkpoints.

    Args:
        write: writes the tensors to a temporary folder, for the messages that of the checkpoint;
            default: one file.

    Raises:
        CheckpointError: it cannot be written, or the parent of `folder` does not exist.
    """
    path = checkpoint_path(folder, step)
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise CheckpointError(describe_lost_folder(folder.parent)) from None
    with replacing_folder(path) as temporary:
        (write or _write_whole)(temporary, path, _copy_to_cpu(tensors))
        seal(temporary, state)
    keep_newest(path, keep)
    return path


def _copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies, as some tensors are views of one block of memory."""
    return {n: t.detach().to("cpu", copy=True).contiguous() for n, t in tensors.items()}


def _write_whole(temporary: Path, path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        save_file(tensors, temporary / WHOLE)
    except SafetensorError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from None


class CheckpointWriter:
    """A writer of a run's checkpoints. All ranks must call it.

    Args:
        folder: the folder of all checkpoints.
        keep: number of checkpoints to keep.
        is_sharded: True if every rank writes its own shards, by torch.distributed.checkpoint with
            safetensors; False if rank 0 writes whole tensors.
    """

    def __init__(self, folder: Path, keep: int, world: World, is_sharded: bool = False) -> None:
        self.folder, self.keep, self.world = folder, keep, world
        self._channel = open_channel() if is_sharded else None

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write a checkpoint; it gets its name when the tensors of all ranks are on disk.

        Raises:
            CheckpointError: it cannot be written.
        """
        write = self._write_shards if self._channel else None
        if self.world.is_first:
            save_checkpoint(self.folder, step, tensors, state, self.keep, write)
        elif write is not None:
            path = checkpoint_path(self.folder, step)
            write(temporary_path(path), path, _copy_to_cpu(tensors))

    def _write_shards(self, temporary: Path, path: Path, tensors: dict[str, Tensor]) -> None:
        """Write this rank's shards; on rank 0, return when all ranks have written theirs."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        dist.barrier(self._channel)  # until rank 0 has made the folder
        writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
        try:
            save(tensors, storage_writer=writer, process_group=self._channel)
        except CheckpointException as error:
            reason = next(iter(error.failures.values()))[0]
            raise CheckpointError(f"{path} cannot be written: {reason}") from None
