import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from maskwright.files import (
    HeldFolder,
    as_mapping,
    flush,
    hash_file,
    naming_file,
    read_json,
    read_object,
    replacing_folder,
    restore_folder,
    temporary_path,
    write_json,
    write_text,
)
from tests.limits import limited_file_size


def test_the_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"maskwright")
    assert hash_file(tmp_path / "x") == hashlib.sha256(b"maskwright").hexdigest()


def test_text_is_replaced_and_nothing_is_left_over(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    write_text(path, "new ü")
    assert path.read_text(encoding="utf-8") == "new ü"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text(encoding="utf-8") == "old"


def test_a_full_disk_is_named_and_the_temporary_file_removed(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with limited_file_size(1000), pytest.raises(OSError, match=r"File too large: .*file\.txt"):
        write_text(path, "new" * 1000)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_that_names_a_file_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"), naming_file(tmp_path / "other"):
        (tmp_path / "missing").read_text(encoding="utf-8")


def test_json_is_readable_by_people(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": "ü"})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": "ü"}
    assert "ü" in text
    assert text.endswith("}\n")


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with replacing_folder(path) as temporary:
            (temporary / "below").mkdir()
            (temporary / "below" / content).write_text(content, encoding="utf-8")
            assert not (path / "below" / content).exists()
    assert [file.name for file in path.rglob("*") if file.is_file()] == ["second"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "current"
    link.symlink_to("real")
    for content in ("first", "second"):
        with replacing_folder(link) as folder:
            (folder / "a").write_text(content)
        assert link.is_symlink()
        assert (tmp_path / "real" / "a").read_text() == content


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with replacing_folder(path) as temporary:
        (temporary / "old").touch()
    with pytest.raises(FileNotFoundError), replacing_folder(path) as temporary:
        (temporary / "new" / "file").touch()
    assert [file.name for file in path.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_rename_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    with replacing_folder(path) as temporary:
        (temporary / "old").touch()
    rename = Path.rename

    def fail(source: Path, target: Path) -> Path:
        if source.name.endswith(".tmp"):
            raise PermissionError(str(source))
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(PermissionError), replacing_folder(path) as temporary:
        (temporary / "new").touch()
    assert [file.name for file in path.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_crash_between_the_renames_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("kept", "not wanted"):
        (tmp_path / ".folder.old").mkdir()
        (tmp_path / ".folder.old" / content).touch()
        restore_folder(path)
    assert [file.name for file in path.iterdir()] == ["kept"]
    path.rename(tmp_path / ".folder.crashed")
    with pytest.raises(ZeroDivisionError), replacing_folder(path):
        _ = 1 / 0
    assert [file.name for file in path.iterdir()] == ["not wanted"]


def test_what_an_earlier_crash_left_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / ".folder.tmp").mkdir()
    (tmp_path / ".folder.tmp" / "stale").touch()
    with replacing_folder(tmp_path / "folder") as temporary:
        (temporary / "fresh").touch()
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["fresh"]


def test_json_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"ü": [1, "\udcff"]})  # a file name may be any bytes
    assert read_json(path, 100) == {"ü": [1, "\udcff"]}
    for content, message in (
        (b"1" * 101, "more than the 100 bytes"),
        (b"[" * 100, "Expecting value"),
        (b"\xff", "invalid start byte"),
        (b"9" * 5_000, "Exceeds the limit"),
        (b"[" * 100_000, "nested too deeply"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_json(path, 100 if len(content) <= 101 else 1 << 24)
    with pytest.raises(OSError, match="No such file"):
        read_json(tmp_path / "nowhere", 100)


def test_an_object_is_told_from_other_json(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    write_json(tmp_path / "y.json", [1])
    assert read_object(tmp_path / "x.json", 100) == {"a": 1}
    with pytest.raises(ValueError, match="not a JSON object"):
        read_object(tmp_path / "y.json", 100)
    assert (as_mapping({"a": 1}), as_mapping([1]), as_mapping(None)) == ({"a": 1}, {}, {})


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    temporary_path(tmp_path / "x").symlink_to(tmp_path / "other")
    write_text(tmp_path / "x", "new")
    assert (tmp_path / "other").read_text() == "other"
    assert (tmp_path / "x").read_text() == "new"


def test_files_of_a_folder_get_the_rights_that_new_files_have(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "folder") as folder:
        (folder / "secret").write_text("x")
        (folder / "secret").chmod(0o600)
        (folder / "plain").write_text("x")
    modes = [file.stat().st_mode for file in (tmp_path / "folder").iterdir()]
    assert modes[0] == modes[1]


def test_an_error_of_the_disk_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network file systems tell of a quota when a file is flushed, and name no file."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", fail)
    caught = pytest.raises(OSError, match="Disk quota exceeded")
    with caught as error, replacing_folder(tmp_path / "folder"):
        pass
    assert error.value.filename == str(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def refuse(number: int) -> Callable[..., None]:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_rights_takes_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "chmod", refuse(number))
    with replacing_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "folder" / "file").read_text() == "x"


def test_only_a_folder_may_refuse_to_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    flush(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        flush(tmp_path / "file")
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        flush(tmp_path)


def test_a_held_folder_is_recognized(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    held = HeldFolder(folder)
    assert held.is_in_place()
    folder.rename(tmp_path / "other")
    assert not held.is_in_place()
    folder.mkdir()
    assert not held.is_in_place()
    folder.rmdir()
    (tmp_path / "other").rename(folder)
    assert held.is_in_place()
    held.close()
