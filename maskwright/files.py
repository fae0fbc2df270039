"""Files that are either whole or not there: temporary name, flush to disk, rename."""

import hashlib
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def hash_file(path: Path) -> str:
    """sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes a text file so that a crash leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Like `write_text`, of a value as indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def replacing_folder(path: Path) -> Generator[Path]:
    """A temporary folder to fill, which takes the place of `path` when the block succeeds.

    If it fails, or the temporary folder cannot be renamed, `path` is as it was before.
    """
    restore_folder(path)
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for entry in (*temporary.rglob("*"), temporary):
            flush(entry)
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


def restore_folder(path: Path) -> None:
    """Puts `path` back where `replacing_folder` was stopped between its two renames."""
    old = _old_folder(path)
    if old.is_dir() and not path.exists():
        old.rename(path)


def _old_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
