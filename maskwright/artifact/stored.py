"""The tensors in safetensors files: what they are is known before any value is read.

safetensors checks that names, shapes and offsets fit the file; what it leaves to us is that a
header of a hundred megabytes becomes gigabytes, and whether anybody wants these tensors at all.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from maskwright.errors import ModelFolderError

MAX_HEADER_BYTES = 16 << 20  # a hundred thousand tensors
FLOATS = ("F64", "F32", "F16", "BF16")


class StoredTensors:
    """The tensors of one or more files, by name.

    Raises:
        ModelFolderError: a file that is not what it should be.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        for path in paths:
            file: Any = self._stack.enter_context(_open(path))
            names: list[str] = file.keys()
            twice = self._files.keys() & names
            if twice:
                raise ModelFolderError(f"{path} holds tensor {min(twice)}, as another part does.")
            self._files.update(dict.fromkeys(names, file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def names(self) -> set[str]:
        return set(self._files)

    def shape(self, name: str) -> torch.Size:
        return torch.Size(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """As safetensors calls it: F32, BF16, I64, …"""
        return self._files[name].get_slice(name).get_dtype()

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """The tensor, or its rows from `start` to `stop`."""
        file = self._files[name]
        whole = start == 0 and stop is None
        return file.get_tensor(name) if whole else file.get_slice(name)[start:stop]


def check_header(path: Path) -> None:
    """Raises SafetensorError if the header of a safetensors file would take too much memory."""
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > MAX_HEADER_BYTES:
        raise SafetensorError(f"its header has {header} bytes, at most {MAX_HEADER_BYTES} work")


def _open(path: Path) -> Any:
    try:
        check_header(path)
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFolderError(f"{path} cannot be read as safetensors: {reason}.") from None
