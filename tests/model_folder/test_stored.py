from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from maskwright.errors import ModelFolderError
from maskwright.model_folder.weights import MAX_HEADER_BYTES, StoredTensors


def test_tensors_of_several_files_are_known_before_they_are_read(tmp_path: Path) -> None:
    first, second = {"a": torch.ones(2, 3)}, {"b": torch.arange(4)}
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for path, tensors in zip(paths, (first, second), strict=True):
        save_file(tensors, path)
    with StoredTensors(paths) as stored:
        assert stored.names == {"a", "b"}
        assert stored.shape("a") == (2, 3)
        assert (stored.dtype("a"), stored.dtype("b")) == ("F32", "I64")
        assert torch.equal(stored.read("b"), second["b"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read as safetensors"),
        (b"\0" * 8, "cannot be read as safetensors"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{", "its header has 16777217 bytes"),
        (b"\2" + b"\0" * 7 + b"{}" + b"more", "cannot be read as safetensors"),
    ],
)
def test_what_is_no_safetensors_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFolderError, match=reason) as caught, StoredTensors([path]):
        pass
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tensor_in_two_files_is_named(tmp_path: Path) -> None:
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for path in paths:
        save_file({"a": torch.ones(2), path.name: torch.ones(1)}, path)
    with pytest.raises(ModelFolderError, match="holds tensor a, as does another part"):
        StoredTensors(paths)


def test_rows_of_a_tensor(tmp_path: Path) -> None:
    tensor = torch.arange(12).view(6, 2)
    save_file({"a": tensor}, tmp_path / "x.safetensors")
    with StoredTensors([tmp_path / "x.safetensors"]) as stored:
        assert torch.equal(stored.read("a"), tensor)
        assert torch.equal(stored.read("a", 2, 4), tensor[2:4])
