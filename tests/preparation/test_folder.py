import errno
import threading
import time
from pathlib import Path

import pytest

from maskwright.errors import ShardError
from maskwright.preparation.folder import check_use, making_folder
from maskwright.preparation.pipeline import prepare
from maskwright.shards.manifest import read_manifest
from tests.preparation.helpers import small_config, write_corpus


def ignore(line: str) -> None:
    del line


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    path, out = write_corpus(tmp_path / "a.txt"), tmp_path / "out"
    lines: list[str] = []

    def prepare_too() -> None:
        prepare([str(path)], out, small_config(), report=lines.append)

    second = threading.Thread(target=prepare_too, daemon=True)
    with making_folder(out, ignore):
        second.start()
        deadline = time.monotonic() + 30
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "out is being prepared by another process" in lines[0]
        assert list(out.iterdir()) == []
    second.join(timeout=60)
    assert read_manifest(out).splits["train"].num_tokens > 0


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
    (out / ".preparing.json.tmp").write_text('{"finger', encoding="utf-8")
    prepare([str(path)], out, small_config())
    assert not list(out.glob(".*"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".preparing.json.tmp").touch()
    (tmp_path / "other" / "thesis.doc").touch()
    with pytest.raises(ShardError, match="in use for something else"):
        check_use(tmp_path / "other")


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
