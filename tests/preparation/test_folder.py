"""Who may write to a folder, and what belongs to whom in it."""

import errno
import shutil
from pathlib import Path

import pytest

from maskwright.errors import ShardError
from maskwright.preparation.folder import (
    check_use,
    claim_work,
    find_work,
    making_folder,
)
from maskwright.preparation.pipeline import prepare
from tests.preparation.helpers import read_folder, small_config, write_corpus


def ignore(line: str) -> None:
    del line


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    lines: list[str] = []
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            making_folder(tmp_path / "new" / "out", lines.append),
        ):
            _ = 1 / 0
    assert lines == []


def test_a_file_cannot_be_filled(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with (
        pytest.raises(ShardError, match=r"a\.txt is a file, not"),
        making_folder(tmp_path / "a.txt", ignore),
    ):
        pass


@pytest.mark.parametrize("name", [".stdin.txt.tmp", "stdin-0123456789abcdef"])
def test_a_folder_in_which_reading_standard_input_was_killed_is_ours(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    check_use(tmp_path)
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(ShardError, match="files that are not prepared data"):
        check_use(tmp_path)


def test_work_on_the_same_input_is_kept(tmp_path: Path) -> None:
    work = claim_work(tmp_path, "a" * 64)
    assert find_work(tmp_path) is None
    (work / "plan.json").touch()
    (work / "read").mkdir()
    assert claim_work(tmp_path, "a" * 64) == work == find_work(tmp_path)
    assert (work / "read").exists()


@pytest.mark.parametrize("identity", ["a" * 64, "b" * 64])
def test_work_without_a_plan_or_on_another_input_is_removed(tmp_path: Path, identity: str) -> None:
    """The plan goes first, so what a process leaves that is killed meanwhile has none."""
    before = claim_work(tmp_path, "a" * 64)
    (before / "read").mkdir()
    if identity != "a" * 64:
        (before / "plan.json").touch()
    for name in ("train", "tokenizer"):  # of a process killed at the end
        (tmp_path / name).mkdir()
    (tmp_path / "selection.json").touch()
    work = claim_work(tmp_path, identity)
    assert list(tmp_path.iterdir()) == [work]
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("killed_at", ["rmtree", "unlink", "rename"])
def test_a_damaged_folder_stays_ours_when_a_process_that_repairs_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    before = prepare([str(path)], out, small_config())
    expected = read_folder(out)
    (out / "train" / "00000.tokens").write_bytes(b"damaged")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(shutil if killed_at == "rmtree" else Path, killed_at, die)
        with pytest.raises(KeyboardInterrupt):
            prepare([str(path)], out, small_config())
    assert prepare([str(path)], out, small_config()) == before
    assert read_folder(out) == expected


def test_a_finished_folder_that_cannot_be_written_to_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    before = prepare([str(path)], out, small_config())

    def fail(file: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(file))

    # As root, tests can write everywhere; and there the kernel does not look for the file first.
    monkeypatch.setattr(Path, "unlink", fail)
    assert prepare([str(path)], out, small_config()) == before
