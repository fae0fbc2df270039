"""Writes checkpoints: one file by one rank, or each rank its own while the training goes on."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from maskwright.distributed.world import World, open_channel
from maskwright.errors import CheckpointError
from maskwright.files import replacing_folder, temporary_path
from maskwright.train.checkpoint import (
    WHOLE,
    checkpoint_path,
    describe_lost_folder,
    keep_newest,
    seal,
)


class CheckpointWriter(Protocol):
    """Where a run's checkpoints go. All ranks call it."""

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Writes a checkpoint, or begins to; tensors may change as soon as it returns.

        Raises:
            CheckpointError: it, or the one before, could not be written.
        """
        ...

    def wait(self) -> None:
        """Returns when all checkpoints are written; raises as `save` does."""
        ...

    def close(self) -> None:
        """Ends what is being written, well or ill. Before ranks part: they write together."""
        ...


class WholeWriter:
    """Rank 0 writes everything, for ranks that all have everything.

    Args:
        folder: of all checkpoints.
        keep: how many of them.
    """

    def __init__(self, folder: Path, keep: int, world: World) -> None:
        self.folder, self.keep, self.world = folder, keep, world

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        if self.world.is_first:
            save_checkpoint(self.folder, step, tensors, state, self.keep)

    def wait(self) -> None:
        self.world.wait()

    def close(self) -> None:
        pass


def save_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], keep: int
) -> Path:
    """Writes ``folder/step_N`` in this process and keeps the `keep` newest checkpoints.

    Raises:
        CheckpointError: it cannot be written, or the parent of `folder` is gone.
    """
    path = checkpoint_path(folder, step)
    _make_folder(folder)
    contiguous = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    with replacing_folder(path) as temporary:
        try:
            save_file(contiguous, temporary / WHOLE)
        except SafetensorError as error:
            raise CheckpointError(f"{path} cannot be written: {error}") from None
        seal(temporary, state)
    keep_newest(path, keep)
    return path


def _make_folder(folder: Path) -> None:
    """Make the folder of all checkpoints, but never the run directory, which somebody removed."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise CheckpointError(describe_lost_folder(folder.parent)) from None


class ShardedWriter:
    """Every rank writes its parts in a thread (torch.distributed.checkpoint, as safetensors).

    The parts are copied to the CPU first, so that training goes on meanwhile. A checkpoint gets
    its name when the parts of all ranks are on disk.
    """

    def __init__(self, folder: Path, keep: int, world: World) -> None:
        self.folder, self.keep, self.world = folder, keep, world
        # The thread talks to the other ranks, too, and must not get into the way of the training.
        self._channel = open_channel()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        self._finish()
        staged = {name: torch.clone(t.detach()).cpu() for name, t in tensors.items()}
        path = checkpoint_path(self.folder, step)
        self._pending = self._thread.submit(self._write, path, staged, dict(state))

    def wait(self) -> None:
        self._finish()
        self.world.wait()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _finish(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _write(self, path: Path, staged: dict[str, Tensor], state: dict[str, Any]) -> None:
        if not self.world.is_first:
            self._write_parts(temporary_path(path), path, staged)
            return
        _make_folder(self.folder)
        with replacing_folder(path) as temporary:
            self._write_parts(temporary, path, staged)
            seal(temporary, state)
        keep_newest(path, self.keep)

    def _write_parts(self, temporary: Path, path: Path, staged: dict[str, Tensor]) -> None:
        """Returns on rank 0 when all ranks have written."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        dist.barrier(self._channel)  # until rank 0 has made the folder
        writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
        try:
            save(staged, storage_writer=writer, process_group=self._channel)
        except CheckpointException as error:
            reason = next(iter(error.failures.values()))[0]
            raise CheckpointError(f"{path} cannot be written: {reason}") from None
