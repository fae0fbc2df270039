"""Files that are complete or missing, never partial: temporary name, flush to disk, rename."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from maskwright.errors import InputError

# From a file that others write: its fields are checked where they are read.
JsonObject = dict[str, Any]
# In a JSON file; each takes up to a hundred bytes of memory, however short it is written.
_MOST_VALUES = 4_000_000


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def naming_file(path: Path) -> Generator[None]:
    """Add `path` to file system errors that name no file, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextmanager
def replacing_file(path: Path, shared: bool = False) -> Generator[Path]:
    """Yield a temporary file to write, which replaces `path` when the block succeeds.

    If it fails, `path` is as it was before, and the temporary file takes up no space.

    Args:
        shared: other processes may write the same file at the same time, so that each needs a
            temporary file of its own.
    """
    temporary = temporary_path(path)
    if shared:
        temporary = temporary.with_name(f"{temporary.name}-{secrets.token_hex(4)}")
    try:
        with naming_file(path):
            temporary.unlink(missing_ok=True)  # if somebody put a link there, it is not followed
            yield temporary
            flush(temporary)
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def writing_file(path: Path) -> Generator[BinaryIO]:
    """Yield a new file to write to, which replaces `path` and may be written by others, too."""
    with replacing_file(path, shared=True) as temporary, temporary.open("wb") as file:
        yield file


def temporary_path(path: Path) -> Path:
    """Return where a file or folder is written before it gets its name."""
    return path.with_name(f".{path.name}.tmp")


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a crash leaves the old one or the new one."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON; see `write_text`.

    Strings that are no Unicode, such as some file names, are written with JSON's escapes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


@contextmanager
def locking_folder(
    folder: Path, when_busy: Callable[[], None], report: Callable[[str], None]
) -> Generator[None]:
    """Lock `folder` against other processes that lock it, too.

    The lock is on the folder itself and goes away with its process: nothing is left behind. The
    library filelock leaves a file behind and has no shared locks, which the cache of mirrors needs.

    Args:
        when_busy: called if another process has the lock, which is waited for if it returns.
        report: is told where a file system cannot lock, so that nothing guards the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            reason = error.strerror
            report(f"warning: {folder} cannot be locked ({reason}): let only one process use it")
        yield
    finally:
        os.close(descriptor)


class HeldFolder:
    """A folder that is kept open, to recognize it whatever happens to its name.

    While it is open, the operating system gives its number (inode) to no other folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)

    def is_in_place(self) -> bool:
        """Return False if `path` is gone or is another folder by now."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        os.close(self._descriptor)


def find_link(folder: Path) -> Path | None:
    """Return a symbolic link in `folder` (not deeper) through which writing goes elsewhere."""
    return next((entry for entry in sorted(folder.iterdir()) if entry.is_symlink()), None)


def read_json(path: Path, max_bytes: int) -> Any:
    """Read a JSON file of unknown origin in bounded memory.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger than `max_bytes`, or not JSON.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than the {max_bytes:,} bytes that such a file may have")
    if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(path: Path, max_bytes: int) -> JsonObject:
    """Read a JSON file as `read_json` does; raise ValueError too if it holds no object."""
    found = read_json(path, max_bytes)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return cast(JsonObject, found)


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value from YAML or JSON if it is a mapping; else an empty one."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


@contextmanager
def replacing_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder to fill, which replaces `path` when the block succeeds.

    If it fails, or the temporary folder cannot be renamed, `path` is as it was before.
    """
    restore_folder(path)
    temporary = temporary_path(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        with naming_file(path):
            yield temporary
            _flush_all(temporary)
            old = _old_folder(path)
            shutil.rmtree(old, ignore_errors=True)
            if path.exists():
                path.rename(old)
            temporary.rename(path)
            flush(path.parent)
            shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        restore_folder(path)
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _flush_all(folder: Path) -> None:
    # Some libraries keep a file from everybody else; it gets the rights any new one would have.
    rights = folder.stat().st_mode & 0o666
    for entry in (*folder.rglob("*"), folder):
        if entry.is_file():
            with suppress(OSError):  # some file systems (FAT, SMB) have no rights to change
                entry.chmod(rights)
        flush(entry)


def restore_folder(path: Path) -> None:
    """Restore `path` where `replacing_folder` was stopped between its two renames."""
    old = _old_folder(path)
    if old.is_dir() and not path.exists():
        old.rename(path)


def _old_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems (SMB) cannot flush a folder; they write its names by themselves.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def check_new_folder(out: Path) -> None:
    """Raise unless the folder is missing or empty.

    Raises:
        InputError: it holds something, or it is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out = {out} exists already. Choose another folder, or remove it.")


def check_new_file(out: Path) -> None:
    """Raise unless the file is missing and can be made.

    Raises:
        InputError: it exists, or there is no folder for it.
    """
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out = {out}: there is no folder to write it to")
    if out.is_dir():
        raise InputError(f"--out = {out} is a folder. Name a file in it.")
    if out.exists():
        raise InputError(f"--out = {out} exists already. Choose another file, or remove it.")
