"""Who may write to a folder, and what belongs to whom in it."""

import errno
from pathlib import Path

import pytest

from maskwright.errors import ShardError
from maskwright.preparation.folder import (
    check_use,
    claim_work,
    find_work,
    making_folder,
    mark_unfinished,
    read_state,
)
from maskwright.preparation.pipeline import prepare
from tests.preparation.helpers import small_config, write_corpus


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
        pytest.raises(ShardError, match=r"a\.txt is a file, in use"),
        making_folder(tmp_path / "a.txt", ignore),
    ):
        pass


def test_a_folder_left_by_a_preparation_killed_at_its_first_file_is_ours(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    out.mkdir()
    (out / ".preparing.json.tmp").write_text('{"iden', encoding="utf-8")
    prepare([str(path)], out, small_config())
    assert not list(out.glob(".*"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".preparing.json.tmp").touch()
    (tmp_path / "other" / "thesis.doc").touch()
    with pytest.raises(ShardError, match="in use for something else"):
        check_use(tmp_path / "other")


def test_work_on_the_same_input_is_kept(tmp_path: Path) -> None:
    work = claim_work(tmp_path, "a" * 64)
    (work / "plan.json").touch()
    assert claim_work(tmp_path, "a" * 64) == work == find_work(tmp_path)
    assert (work / "plan.json").exists()


@pytest.mark.parametrize("state", ["a" * 64, ""])
def test_work_on_another_input_is_removed(tmp_path: Path, state: str) -> None:
    """Also if a process was killed while it removed that."""
    before = claim_work(tmp_path, "a" * 64)
    for name in ("train", "tokenizer"):  # of a process killed at the end
        (tmp_path / name).mkdir()
    (tmp_path / "selection.json").touch()
    mark_unfinished(tmp_path, state)
    work = claim_work(tmp_path, "b" * 64)
    assert work != before
    assert {path.name for path in tmp_path.iterdir()} == {"preparing.json", work.name}
    assert read_state(tmp_path) == "b" * 64


@pytest.mark.parametrize("content", [b"", b"[]", b'{"fingerprint": "f"}', b"\xff", b"[" * 99_999])
def test_a_damaged_state_is_none(tmp_path: Path, content: bytes) -> None:
    work = claim_work(tmp_path, "a" * 64)
    (work / "plan.json").touch()
    (tmp_path / "preparing.json").write_bytes(content)
    assert read_state(tmp_path) == ""
    assert not (claim_work(tmp_path, "a" * 64) / "plan.json").exists()


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
