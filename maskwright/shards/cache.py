"""Where fetched data is kept: folders under one limit, of which those unused longest go first.

::

    CACHE/
      .lock                         held while room is made and while a folder is entered
      NAME-0123456789abcdef/        a mirror of a prepared folder
        .origin                       its URL; locked by whoever uses the mirror, its time says when
        manifest.json ...
        train/.00003.tokens.claim     room set aside for a file: takes no space, but is as long

A mirror is used as a whole: the order of training jumps through all of its shards, so as long as
a process has it open, none of its files is taken away. The locks (`flock`) go away with their
processes.
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
        ConfigError: there is no home folder to keep it in.
    """
    given = os.environ.get(FOLDER) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        folder = Path(given).expanduser().absolute()
    except RuntimeError:
        rule = "must be set, as there is no home folder"
        raise ConfigError(FOLDER, os.environ.get(FOLDER), rule, "Name a folder.") from None
    return folder if os.environ.get(FOLDER) else folder / "maskwright"


def claim_path(path: Path) -> Path:
    """Return the file that reserves room for a coming file and is locked by the process that
    fetches it.
    """
    return path.with_name(f".{path.name}{_CLAIM}")


def _claimed_path(claim: Path) -> Path:
    return claim.with_name(claim.name.removesuffix(_CLAIM)[1:])


@contextmanager
def locking_file(path: Path) -> Generator[None]:
    """Hold an exclusive lock on `path`, which is created if needed.

    Whoever holds the lock may remove the file.

    Raises:
        ShardError: the file system cannot lock.
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
            f"{path} cannot be locked ({error.strerror}). Let {FOLDER} name a folder on a local "
            "disk."
        ) from None


class Cache:
    """The cache that the environment names.

    Raises:
        ConfigError: ``$MASKWRIGHT_CACHE_GB`` is not a number above 0.
    """

    def __init__(self) -> None:
        self.folder = cache_folder()
        self._limit = _read_limit()

    def enter(self, mirror: Path, fill: Callable[[], None]) -> int:
        """Mark `mirror` as used until `leave` is called with the returned descriptor.

        Args:
            fill: writes what makes it a mirror, while nobody else can enter.
        """
        with self._alone():
            fill()
            path = mirror / ORIGIN_NAME
            descriptor = os.open(path, os.O_RDWR)
            _lock(descriptor, path, fcntl.LOCK_SH)
            os.utime(path)
            return descriptor

    def claim(self, files: Mapping[Path, int], origin: str) -> None:
        """Reserve room for files to come, removing idle mirrors if there is too little.

        Args:
            files: their sizes in bytes. Those that are there, or have been claimed, cost nothing.
            origin: what they are part of, for messages.

        Raises:
            ShardError: there is not enough room, whatever is removed that nobody uses.
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
                f"{origin} needs {num_bytes / _GB:,.3f} GB more in {self.folder}, which may hold "
                f"{limit / _GB:,.3f} GB, of which {in_use / _GB:,.3f} are in use. Training reads "
                f"its shards in no order, so it needs all of them at hand: raise {LIMIT}, or let "
                f"{FOLDER} name a folder with more room."
            )
        for mirror, size in idle.items():
            if excess <= 0:
                break
            tell(f"removing {mirror} ({size / _GB:,.3f} GB) to make room for {origin}")
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
    """Return the files that are neither there nor claimed. A file appears before its claim goes."""
    return {
        path: num_bytes
        for path, num_bytes in files.items()
        if not claim_path(path).exists() and not path.exists()
    }


def _measure(mirror: Path) -> tuple[int, int]:
    """Return the bytes of the files that are there and of those that are claimed."""
    present = claimed = 0
    for path in mirror.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # just fetched by somebody, and now of another name
            continue
        if path.name.endswith(_CLAIM):
            if not _claimed_path(path).exists():  # else a process died between file and claim
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
    """Return True if no process uses the mirror; none can begin while the cache is locked."""
    descriptor = os.open(mirror / ORIGIN_NAME, os.O_RDWR)
    try:
        _lock(descriptor, mirror, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
