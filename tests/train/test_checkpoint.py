import shutil
from pathlib import Path

import pytest
import torch

from maskwright.errors import CheckpointError
from maskwright.train import checkpoint as checkpoint_module
from maskwright.train.checkpoint import (
    Checkpoint,
    find_newest,
    list_checkpoints,
    open_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

TENSORS = {
    "model/weight": torch.arange(6.0).reshape(2, 3),
    "model/turned": torch.arange(6).reshape(2, 3).T,
    "optimizer/step/weight": torch.tensor(7.0),
    "optimizer/exp_avg/weight": torch.full((2, 3), 0.1),
}


def read_all(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Into tensors of the dtypes above."""
    read = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    checkpoint.read_into(read)
    return read


def save(folder: Path, step: int, keep: int = 10) -> Path:
    return save_checkpoint(folder, step, TENSORS, {"step": step}, keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save(tmp_path, 12))
    assert checkpoint.state == {"step": 12}
    assert checkpoint.shapes == {name: tensor.shape for name, tensor in TENSORS.items()}
    read = read_all(checkpoint)
    assert all(torch.equal(read[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("model/other", (2, 3), "model/other is missing, the model's is (2, 3)"),
        ("model/weight", (3, 2), "model/weight has shape (2, 3), the model's is (3, 2)"),
    ],
)
def test_a_tensor_that_does_not_fit_is_an_error(
    tmp_path: Path, name: str, shape: tuple[int, ...], message: str
) -> None:
    checkpoint = open_checkpoint(save(tmp_path, 1))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.read_into({name: torch.zeros(shape)})
    assert message in str(caught.value)


def test_nothing_in_a_checkpoint_has_to_be_unpickled(tmp_path: Path) -> None:
    suffixes = {file.suffix for file in save(tmp_path, 1).iterdir()}
    assert suffixes == {".safetensors", ".json"}


def test_an_interrupted_save_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint_module, "hash_file", fail)
    with pytest.raises(OSError, match="disk full"):
        save(tmp_path, 2)
    assert names(tmp_path) == ["step_00000001"]


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".step_00000001.tmp").mkdir(parents=True)
    assert find_newest(tmp_path) == (None, [])
    save(tmp_path, 2)
    assert names(tmp_path) == ["step_00000002"]


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing", "empty"])
def test_damage_is_found_and_the_checkpoint_before_is_used(
    tmp_path: Path, file: str, damage: str
) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    content = path.read_bytes()
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    damaged = {"flipped": bytes(changed), "truncated": content[:-9], "empty": b""}
    path.unlink()
    if damage in damaged:
        path.write_bytes(damaged[damage])
    with pytest.raises(CheckpointError) as caught:
        verify_checkpoint(path.parent)
    assert "step_00000002" in str(caught.value)
    loaded, complaints = find_newest(tmp_path)
    assert loaded is not None
    assert loaded.state == {"step": 1}
    assert len(complaints) == 1


def test_a_file_too_many_is_damage(tmp_path: Path) -> None:
    """Else a file of tensors that nobody hashed might be read."""
    path = save(tmp_path, 1)
    shutil.copy(path / "tensors.safetensors", path / "shard-00001.safetensors")
    with pytest.raises(CheckpointError, match=r"shard-00001\.safetensors is not in its manifest"):
        verify_checkpoint(path)


def test_other_folders_and_links_are_neither_used_nor_removed(tmp_path: Path) -> None:
    kept = save(tmp_path / "elsewhere", 7)
    shutil.copytree(kept, tmp_path / "step_best")
    shutil.copytree(kept, tmp_path / "step_00000007.bak")
    (tmp_path / "step_00000008").symlink_to(kept)
    save(tmp_path, 1)
    save(tmp_path, 2, keep=1)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_00000002"]
    assert len(names(tmp_path)) == 5


def test_steps_are_numbers(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000):
        save(tmp_path, step, keep=1)
    assert names(tmp_path) == ["step_100000000"]


@pytest.mark.parametrize("file", ["manifest.json", "state.json"])
def test_files_that_would_fill_the_memory_are_not_read(tmp_path: Path, file: str) -> None:
    path = save(tmp_path, 1)
    (path / file).write_bytes(b"[" + b" " * (17 << 20) + b"]")
    find = verify_checkpoint if file == "manifest.json" else open_checkpoint
    with pytest.raises(CheckpointError, match="it has more than the"):
        find(path)


def test_a_damaged_file_of_tensors_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "tensors.safetensors").write_bytes((1 << 30).to_bytes(8, "little"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_checkpoint(path)


def test_without_a_whole_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert find_newest(tmp_path / "missing") == (None, [])
    (save(tmp_path, 3) / "manifest.json").unlink()
    loaded, complaints = find_newest(tmp_path)
    assert loaded is None
    assert len(complaints) == 1


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 100, 1000):
        save(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step_00000100", "step_00001000"]
    assert [path.name for path in list_checkpoints(tmp_path)] == names(tmp_path)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_later_checkpoint_does_not_push_out_a_whole_one(
    tmp_path: Path, keep: int
) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20) / "state.json").unlink()
    # The run goes on from step 10 and saves at step 15.
    save(tmp_path, 15, keep)
    loaded, complaints = find_newest(tmp_path)
    assert loaded is not None
    assert loaded.state == {"step": 15}
    assert complaints == []


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    path = save(tmp_path, 4)
    shutil.copy(path / "state.json", path / "stray.json")
    assert names(save(tmp_path, 4)) == ["manifest.json", "state.json", "tensors.safetensors"]


def test_a_run_folder_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path / "run")):
        save_checkpoint(tmp_path / "run" / "checkpoints", 1, {}, {}, keep=1)
    assert list(tmp_path.iterdir()) == []
