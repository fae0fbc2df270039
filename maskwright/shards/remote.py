"""Prepared folders at URLs, whose files are downloaded when they are needed (extra `remote`)::

    CACHE/
      NAME-0123456789abcdef/        a mirror: a prepared folder with the files needed so far
        .origin                       its URL; locked while in use; its mtime is the last use
        train/.00003.tokens.part      a file that is being downloaded, locked by that process

The name of a mirror has a hash of URL and manifest, so data that changed at its origin gets another
mirror. Every file is compared with the manifest before it gets its name. Only `get_file` of fsspec
is used: its caches (``filecache::``) ask twice for each file, compare nothing and lock nothing.
"""

import errno
import fcntl
import hashlib
import importlib
import math
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from maskwright.console import tell
from maskwright.errors import ConfigError, ShardError
from maskwright.extras import how_to_install
from maskwright.files import read_json, write_text
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    REMEDY,
    SPLITS,
    TOKENIZER_NAME,
    TOKENS,
    PreparedFolder,
    Verify,
    check_ends,
    check_file,
    check_ids,
    read_manifest,
)

FOLDER, LIMIT = "MASKWRIGHT_CACHE", "MASKWRIGHT_CACHE_GB"
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 1.0  # before the second attempt; doubled each time, 15 seconds in all
AT_ONCE = 8  # parallel downloads of a process, because a single connection to a store is slow
_ORIGIN_NAME = ".origin"
_MAX_URL_BYTES = 10_000
_GB = 1e9
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SIGNED_IN = re.compile(r"([^:/]+)://(?P<user>[^/?#]*)@|(https?)://[^?]*\?", re.IGNORECASE)
# In these schemes the part before @ is an Azure container, or a name on the hub with a revision.
_NO_USER = ("abfs", "abfss", "wasb", "wasbs", "hf")
_OURS = ("s3", "s3a", "gs", "gcs", "hf", "http", "https")  # the extra installs their packages
_CHECK = (
    "Check the URL and the credentials (AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN or "
    "~/.config/fsspec)."
)
_PASSING = (408, 425, 429)  # HTTP: request timeout, too early, too many requests

Check = Callable[[Path], None]


def is_remote(name: str) -> bool:
    """Return True if `name` is a URL, not a path."""
    return _URL.match(name) is not None


class Mirror(PreparedFolder):
    """A remote prepared folder. While the object exists, its files are not removed.

    Attributes:
        url: the URL, without a slash at its end.
        num_retries: number of repeated requests.
        has_room: names of files for which `make_room` was called.
    """

    def __init__(self, path: Path) -> None:
        """Use `open_mirror` or `open_folder`."""
        descriptor = os.open(path / _ORIGIN_NAME, os.O_RDWR)
        weakref.finalize(self, os.close, descriptor)
        _lock(descriptor, path, fcntl.LOCK_SH)
        os.utime(descriptor)
        super().__init__(path)
        self.url = os.read(descriptor, _MAX_URL_BYTES).decode()
        self.name = self.url.rpartition("/")[2]
        self.num_retries = 0
        self.has_room = set[str]()
        self._infos = {COUNTS_NAME: self.manifest.unigram_counts}
        for split in SPLITS:
            for shard in self.manifest.splits[split].shards:
                files = {f"{split}/{shard.name}.{kind}": info for kind, info in shard.files.items()}
                self._infos |= files

    def list_files(self, split: str) -> list[str]:
        """Return the names of the files of a split."""
        return [name for name in self._infos if name.startswith(f"{split}/")]

    def find_missing(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of the files with these names that are not here yet."""
        missing = (name for name in names if not (self.path / name).exists())
        return {name: self._infos[name].num_bytes for name in missing if name in self._infos}

    def check(self, split: str, verify: Verify) -> None:
        """Remove files that differ from the manifest, and download the counts and ends.

        Raises:
            ShardError: these cannot be downloaded, or do not match the manifest.
        """
        for name in (COUNTS_NAME, *self.list_files(split)):
            path = self.path / name
            if path.exists():
                try:
                    check_file(path, self._infos[name], verify)
                except ShardError as damage:
                    text = str(damage).replace(str(path), self.describe(name))
                    tell(f"{text.removesuffix(REMEDY)}It is downloaded again.")
                    path.unlink(missing_ok=True)
        shards = self.manifest.splits[split].shards
        names = [COUNTS_NAME, *(f"{split}/{shard.name}.{ENDS}" for shard in shards)]
        make_room({self: self.find_missing(names)})
        with ThreadPoolExecutor(AT_ONCE) as threads:
            try:
                for fetched in [threads.submit(self.place, name) for name in names]:
                    fetched.result()
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        try:
            for shard in shards:
                check_ends(self.path / split, shard, self.manifest.dtype)
        except ShardError as damage:
            raise ShardError(str(damage).replace(str(self.path), self.url)) from None

    def place(self, name: str) -> Path:
        """Return the path of a file in the folder; download the file if it is missing.

        If several threads or processes need it, one of them downloads it.

        Raises:
            ShardError: it cannot be downloaded, or there is no space for it.
        """
        path = self.path / name
        if path.exists():
            return path
        if name not in self.has_room:
            make_room({self: self.find_missing([name])})
        part = path.with_name(f".{path.name}.part")
        with _locking(part):
            if path.exists():  # another process was faster
                part.unlink(missing_ok=True)
            else:
                self.num_retries += _download(self.url, name, part, partial(self._check, name))
                part.replace(path)
        return path

    def _check(self, name: str, path: Path) -> None:
        if (info := self._infos.get(name)) is None:  # of the tokenizer the manifest has no hash
            _check_json(path)
            return
        try:
            check_file(path, info, "full")
        except ShardError as damage:
            again = "Copy the prepared folder there again."
            raise ShardError(f"{str(damage).removesuffix(REMEDY)}{again}") from None
        if name.endswith(f".{TOKENS}"):
            check_ids(path, self.manifest)

    def describe(self, name: str) -> str:
        return f"the local copy of {self.url}/{name}"


MIRRORS: dict[Path, Mirror] = {}  # the mirrors that this process has opened; it never closes them


@cache
def open_mirror(url: str) -> Mirror:
    """Open the mirror of the prepared folder at `url`, as it was when first requested.

    Raises:
        ShardError: there is no prepared folder, it cannot be reached, or its manifest is damaged.
    """
    check_credentials(url)
    url = url.rstrip("/")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / MANIFEST_NAME
        _download(url, MANIFEST_NAME, file, _check_json)
        try:
            read_manifest(Path(scratch))
        except ShardError as error:
            raise ShardError(str(error).replace(scratch, url)) from None
        manifest = file.read_bytes()
    stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in url.rpartition("/")[2])
    digest = hashlib.sha256(url.encode() + b"\n" + manifest).hexdigest()
    path = cache_folder() / f"{stem[:50]}-{digest[:16]}"
    with _locking_cache():
        for folder in (TOKENIZER_NAME, *SPLITS):
            (path / folder).mkdir(parents=True, exist_ok=True)
        if not (path / MANIFEST_NAME).exists() or (path / MANIFEST_NAME).read_bytes() != manifest:
            write_text(path / MANIFEST_NAME, manifest.decode())
        if not (path / _ORIGIN_NAME).exists():  # else other processes may hold locks on this file
            write_text(path / _ORIGIN_NAME, url)
        return MIRRORS.get(path) or MIRRORS.setdefault(path, Mirror(path))


def open_folder(name: Path | str) -> PreparedFolder:
    """Open the prepared folder at a path or a URL.

    Raises:
        ShardError: there is no prepared folder, or its manifest is damaged.
    """
    if isinstance(name, str) and is_remote(name):
        return open_mirror(name)
    # Other folders may contain any file names, so only folders in the cache can be mirrors.
    if (Path(name) / _ORIGIN_NAME).is_file():
        root, found = cache_folder(), Path(name).resolve()  # runs store resolved paths
        if found.parent == root.resolve():
            path = root / found.name
            with _locking_cache():
                return MIRRORS.get(path) or MIRRORS.setdefault(path, Mirror(path))
    return PreparedFolder(Path(name))


def show_path(path: Path) -> str:
    """Return the name of a path for messages: a file in a mirror is named by its origin."""
    found = path.resolve()
    for root, mirror in MIRRORS.items():
        if found.is_relative_to(root.resolve()):
            below = found.relative_to(root.resolve()).as_posix()
            return mirror.url if below == "." else f"{mirror.url}/{below}"
    return str(path)


def _download(url: str, name: str, path: Path, check: Check) -> int:
    """Download ``URL/NAME`` to `path`; return the number of retries.

    Args:
        check: raises a ShardError if the downloaded file is damaged.

    Raises:
        ShardError: the file is missing or forbidden, which is not retried, or every attempt failed.
    """
    system, root = _open_system(url)
    complaint = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            tell(f"{url}/{name}: {complaint} (attempt {attempt} of {ATTEMPTS}; retrying)")
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            system.get_file(f"{root}/{name}", str(path))
            check(path)
            return attempt
        except Exception as error:  # every backend has its own exceptions
            complaint = _describe(error).replace(str(path), "it")
            if (remedy := find_remedy(error, url)) is not None:
                reason = f"cannot be read: {complaint.rstrip('.')}. {remedy}"
                raise ShardError(f"{url}/{name} {reason}") from None
    raise ShardError(
        f"{url}/{name} could not be downloaded in {ATTEMPTS} attempts. The last error: {complaint}"
    )


def _open_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the folder's name in it."""
    try:
        return importlib.import_module("fsspec").core.url_to_fs(url)
    except Exception as error:  # every backend has its own exceptions
        remedy = find_remedy(error, url) or _CHECK
        raise ShardError(
            f"{url} cannot be reached: {_describe(error).rstrip('.')}. {remedy}"
        ) from None


def find_remedy(error: Exception, url: str) -> str | None:
    """Return the remedy of an error; None if another attempt may succeed.

    fsspec imports its backends late, so errors are known by HTTP status or by the name of a class.
    """
    if isinstance(error, ImportError):
        if error.name == "fsspec" or url.partition("://")[0].lower() in _OURS:
            return how_to_install("remote")
        return "The extra remote does not include this package."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Set {FOLDER} to a folder with more space."
    status = getattr(error, "status", None)  # of aiohttp
    is_refused = isinstance(status, int) and 400 <= status < 500 and status not in _PASSING
    is_final = isinstance(error, FileNotFoundError | PermissionError | NotImplementedError)
    return _CHECK if is_refused or is_final or "Credential" in type(error).__name__ else None


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ShardError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _check_json(path: Path) -> None:
    """Raise ShardError unless a file is valid JSON, which a truncated file is not."""
    try:
        read_json(path, MAX_MANIFEST_BYTES)
    except ValueError as error:
        raise ShardError(f"{path} is not JSON: {error}") from None


def check_credentials(url: str) -> None:
    """Raise a ShardError if a URL contains a credential, because runs and logs store the URL."""
    if found := _SIGNED_IN.match(url):
        scheme, user = found[1] or found[3], found["user"]
        if user is None or ":" in user or scheme.lower() not in _NO_USER:
            what = "a query (?…)" if user is None else "a user or password before @"
            raise ShardError(
                f"{scheme}://… contains {what}, and runs and logs store the URL. Remove it, and "
                "put credentials where fsspec looks for them (~/.config/fsspec)."
            )


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


def make_room(missing: Mapping[Mirror, Mapping[str, int]]) -> None:
    """Remove the mirrors that were unused for longest until there is room for these files.

    Args:
        missing: the sizes of the files by name, by mirror.

    Raises:
        ShardError: there is not enough space even without the mirrors that no process uses.
    """
    num_bytes = sum(sum(sizes.values()) for sizes in missing.values())
    if not num_bytes:
        return
    folder, wanted = cache_folder(), " and ".join(mirror.url for mirror in missing)
    with _locking_cache():
        mirrors = [path.parent for path in folder.glob(f"*/{_ORIGIN_NAME}")]
        mirrors.sort(key=lambda mirror: (mirror / _ORIGIN_NAME).stat().st_mtime)
        sizes = {mirror: _size_of(mirror) for mirror in mirrors}
        present, idle = sum(sizes.values()), list(filter(_is_idle, mirrors))
        limit = _read_limit() or (present + shutil.disk_usage(folder).free) // 2
        excess, in_use = present + num_bytes - limit, present - sum(sizes[one] for one in idle)
        if in_use + num_bytes > limit:
            raise ShardError(
                f"{wanted} needs {num_bytes / _GB:,.3f} GB more in {folder}, whose limit is "
                f"{limit / _GB:,.3f} GB, of which {in_use / _GB:,.3f} are in use. Training reads "
                f"shards in random order, so it needs all of them: raise {LIMIT}, or set {FOLDER} "
                "to a folder with more space."
            )
        for mirror in idle:
            if excess > 0:
                tell(
                    f"removing {mirror} ({sizes[mirror] / _GB:,.3f} GB) to free space for {wanted}"
                )
                shutil.rmtree(mirror)
                excess -= sizes[mirror]
    for mirror, names in missing.items():
        mirror.has_room.update(names)


def _size_of(mirror: Path) -> int:
    return sum(path.lstat().st_size for path in mirror.rglob("*") if path.is_file())


def _is_idle(mirror: Path) -> bool:
    """Return True if no process uses the mirror. Call it while the cache is locked."""
    descriptor = os.open(mirror / _ORIGIN_NAME, os.O_RDWR)
    try:
        _lock(descriptor, mirror, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


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


@contextmanager
def _locking_cache() -> Generator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _locking(cache_folder() / ".lock"):
        yield


@contextmanager
def _locking(path: Path) -> Generator[None]:
    """Hold an exclusive lock on a file, which is created if needed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, path, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        raise
    except OSError as error:
        raise ShardError(
            f"{path} cannot be locked ({error.strerror}). Set {FOLDER} to a folder on a local disk."
        ) from None
