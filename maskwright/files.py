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

# A JSON object of unknown origin: its fields are checked where they are used.
JsonObject = dict[str, Any]
_MAX_JSON_BYTES = 64 << 20


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

    If the block fails, `path` is unchanged and the temporary file is removed.

    Args:
        shared: True if other processes may write the same file at the same time; each then has
            a temporary file of its own.
    """
    temporary = temporary_path(path)
    if shared:
        temporary = temporary.with_name(f"{temporary.name}-{secrets.token_hex(4)}")
    try:
        with naming_file(path):
            temporary.unlink(missing_ok=True)  # a link at this path must not be followed
            yield temporary
            flush(temporary)
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def writing_file(path: Path) -> Generator[BinaryIO]:
    """Yield a file to write, which replaces `path`; other processes may write it, too."""
    with replacing_file(path, shared=True) as temporary, temporary.open("wb") as file:
        yield file


def temporary_path(path: Path) -> Path:
    """Return the path of a file or folder until it is complete and renamed."""
    return path.with_name(f".{path.name}.tmp")


def write_text(path: Path, text: str) -> None:
    """Write a text file; after a crash it has either the old or the new content."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON; see `write_text`.

    Strings that are not valid Unicode, such as some file names, are written as JSON escapes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


@contextmanager
def locking_folder(
    folder: Path, when_busy: Callable[[], None], report: Callable[[str], None]
) -> Generator[None]:
    """Lock `folder` against other processes that lock it, too.

    The lock is on the folder itself and ends with its process, so no file is left behind, as by
    the library filelock. `report` warns if the file system has no locks.

    Args:
        when_busy: called if another process has the lock; if it returns, the lock is waited for.
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


def is_locked(folder: Path) -> bool:
    """Return True if a process of this machine has locked `folder`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


class HeldFolder:
    """An open folder, to detect that it was removed, renamed or replaced.

    While it is open, the operating system does not reuse its inode for another folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)

    def is_in_place(self) -> bool:
        """Return False if `path` no longer exists or is another folder."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        os.close(self._descriptor)


def read_json(path: Path, max_bytes: int = _MAX_JSON_BYTES) -> Any:
    """Read a JSON file of unknown origin; raise ValueError if it is larger than `max_bytes`, or not
    JSON.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than the {max_bytes:,} bytes that such a file may have")
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


def parse_object(line: str | bytes, strict: bool = True) -> JsonObject | None:
    """Return the object in a line of JSON, else None; `strict` refuses raw control characters."""
    try:
        found: Any = json.loads(line, strict=strict)
    except (ValueError, RecursionError):
        return None
    return cast(JsonObject, found) if isinstance(found, dict) else None


def find_stated(raw: Mapping[str, Any], default: Any, *names: str) -> Any:
    """Return the value of the first of `names` that is stated, else `default`; null states none.

    A stated 0 or empty value stays, to be used or refused.
    """
    return next((raw[name] for name in names if raw.get(name) is not None), default)


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a value from YAML or JSON if it is a mapping; else an empty one."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


@contextmanager
def replacing_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder to fill, which replaces `path` when the block succeeds.

    If the block fails, or the temporary folder cannot be renamed, `path` is unchanged.
    """
    path = path.resolve() if path.is_symlink() else path  # links stay
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
    # Some libraries write files that only the owner can read; set the usual permissions.
    rights = folder.stat().st_mode & 0o666
    for entry in (*folder.rglob("*"), folder):
        if entry.is_file():
            with suppress(OSError):  # some file systems (FAT, SMB) have no permissions
                entry.chmod(rights)
        flush(entry)


def restore_folder(path: Path) -> None:
    """Restore `path` if `replacing_folder` was interrupted between its two renames."""
    old = _old_folder(path)
    if old.is_dir() and not path.exists():
        old.rename(path)


def _old_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems (SMB) cannot flush a folder; they write its entries without it.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def check_new_folder(out: Path) -> None:
    """Raise InputError unless the folder is missing or empty."""
    if out.name in ("", "..") or out.resolve() == Path.cwd():
        raise InputError(f"--out = {out} must be a new folder. Name another one.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out = {out} exists already. Choose another folder, or remove it.")


def check_new_file(out: Path) -> None:
    """Raise InputError unless the file is missing and can be created."""
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out = {out}: its folder does not exist. Create it first.")
    if out.is_dir():
        raise InputError(f"--out = {out} is a folder. Name a file in it.")
    if out.exists():
        raise InputError(f"--out = {out} exists already. Choose another file, or remove it.")
