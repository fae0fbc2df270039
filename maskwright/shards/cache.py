"""The cache of downloaded data: folders under one size limit; the least recently used go first::

    CACHE/
      .lock                         held while space is freed and while a mirror is opened
      NAME-0123456789abcdef/        a mirror of a prepared folder
        .origin                       its URL; locked while in use; its mtime is the last use
        manifest.json ...
        train/.00003.tokens.claim     space reserved for a file: a sparse file of the same length

A mirror is used as a whole, because training reads its shards in random order, so none of its files
is removed while a process has it open. The locks (`flock`) are released when their process ends.
"""

import fcntl
import math
import os
import shutil
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from maskwright.console import tell
from maskwright.errors import ConfigError, ShardError

FOLDER, LIMIT = "MASKWRIGHT_CACHE", "MASKWRIGHT_CACHE_GB"
ORIGIN_NAME = ".origin"
_LOCK_NAME = ".lock"
_CLAIM = ".claim"
_GB = 1e9


def cache_folder() -> Path:
    """Return ``$MASKWRIGHT_CACHE``, or ``maskwright`` in the system's cache folder.

    Raises:
        ConfigError: there is no home folder.
    """
    given = os.environ.get(FOLDER) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        folder = Path(given).expanduser().absolute()
    except RuntimeError:
        rule = "must be set, as there is no home folder"
        raise ConfigError(FOLDER, os.environ.get(FOLDER), rule, "Name a folder.") from None
    return folder if os.environ.get(FOLDER) else folder / "maskwright"


def claim_path(path: Path) -> Path:
    """Return the path of the claim of a file, which reserves space for the file and is locked by
    the process that downloads it.
    """
    return path.with_name(f".{path.name}{_CLAIM}")


@contextmanager
def locking_file(path: Path) -> Generator[None]:
    """Hold an exclusive lock on `path`, which is created if needed.

    The process that holds the lock may remove the file.

    Raises:
        ShardError: the file system does not support locks.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, path, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return True if the open file is still the file at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        raise
    except OSError as error:
        raise ShardError(
            f"{path} cannot be locked ({error.strerror}). Set {FOLDER} to a folder on a local disk."
        ) from None


class Cache:
    """The cache, as the environment variables configure it.

    Raises:
        ConfigError: ``$MASKWRIGHT_CACHE_GB`` is not a number above 0.
    """

    def __init__(self) -> None:
        self.folder = cache_folder()
        self._limit = _read_limit()

    def enter(self, mirror: Path, fill: Callable[[], None]) -> int:
        """Mark `mirror` as used until `leave` is called with the returned descriptor.

        Args:
            fill: called under the cache's lock; writes the first files of the mirror.
        """
        with self._alone():
            fill()
            path = mirror / ORIGIN_NAME
            descriptor = os.open(path, os.O_RDWR)
            _lock(descriptor, path, fcntl.LOCK_SH)
            os.utime(path)
            return descriptor

    def claim(self, files: Mapping[Path, int], origin: str) -> None:
        """Reserve space for files, removing idle mirrors if there is too little.

        Args:
            files: their sizes in bytes. Files that exist or are claimed need no more space.
            origin: the name of their folder, for messages.

        Raises:
            ShardError: there is not enough space even without the idle mirrors.
        """
        if not _missing(files):
            return
        with self._alone():
            missing = _missing(files)
            self._make_room(sum(missing.values()), origin)
            for path, num_bytes in missing.items():
                with claim_path(path).open("ab") as file:
                    file.truncate(num_bytes)

    @contextmanager
    def _alone(self) -> Generator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with locking_file(self.folder / _LOCK_NAME):
            yield

    def _make_room(self, num_bytes: int, origin: str) -> None:
        mirrors = [path.parent for path in self.folder.glob(f"*/{ORIGIN_NAME}")]
        mirrors.sort(key=lambda mirror: (mirror / ORIGIN_NAME).stat().st_mtime)
        here = {mirror: _measure(mirror) for mirror in mirrors}
        limit = self._limit
        if limit is None:
            present = sum(present for present, _ in here.values())
            limit = (present + shutil.disk_usage(self.folder).free) // 2
        excess = sum(map(sum, here.values())) + num_bytes - limit
        idle = {mirror: sum(here[mirror]) for mirror in mirrors if _is_idle(mirror)}
        if excess > sum(idle.values()):
            in_use = sum(map(sum, here.values())) - sum(idle.values())
            raise ShardError(
                f"{origin} needs {num_bytes / _GB:,.3f} GB more in {self.folder}, whose limit is "
                f"{limit / _GB:,.3f} GB, of which {in_use / _GB:,.3f} are in use. Training reads "
                f"shards in random order, so it needs all of them: raise {LIMIT}, or set {FOLDER} "
                "to a folder with more space."
            )
        for mirror, size in idle.items():
            if excess <= 0:
                break
            tell(f"removing {mirror} ({size / _GB:,.3f} GB) to free space for {origin}")
            _remove(mirror)
            excess -= size


def leave(descriptor: int) -> None:
    """End a use that `Cache.enter` began."""
    os.utime(descriptor)
    os.close(descriptor)


def _read_limit() -> int | None:
    given = os.environ.get(LIMIT)
    if not given:
        return None
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ConfigError(LIMIT, given, "must be a number above 0", "Give it in gigabytes.")
    return int(limit * _GB)


def _missing(files: Mapping[Path, int]) -> dict[Path, int]:
    """Return the files that neither exist nor are claimed. A file appears before its claim ends."""
    return {
        path: num_bytes
        for path, num_bytes in files.items()
        if not claim_path(path).exists() and not path.exists()
    }


def _measure(mirror: Path) -> tuple[int, int]:
    """Return the bytes of the existing files and of the claimed ones."""
    present = claimed = 0
    for path in mirror.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # just downloaded and renamed by another process
            continue
        if path.name.endswith(_CLAIM):
            claimed_file = path.with_name(path.name.removesuffix(_CLAIM)[1:])
            if not claimed_file.exists():  # else a process died before removing the claim
                claimed += status.st_size
        elif stat.S_ISREG(status.st_mode) and not path.name.endswith(".tmp"):  # which has a claim
            present += status.st_size
    return present, claimed


def _remove(mirror: Path) -> None:
    """Remove a mirror, shards first: an interrupted removal leaves a recognizable mirror."""
    for entry in mirror.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
    shutil.rmtree(mirror)


def _is_idle(mirror: Path) -> bool:
    """Return True if no process uses the mirror. Call it while the cache is locked."""
    descriptor = os.open(mirror / ORIGIN_NAME, os.O_RDWR)
    try:
        _lock(descriptor, mirror, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
