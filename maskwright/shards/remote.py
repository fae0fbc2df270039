"""Prepared folders at URLs, whose files are downloaded when they are needed (extra `remote`)::

    CACHE/
      NAME-0123456789abcdef/        a mirror: a prepared folder with the files needed so far
        .origin                       its URL
        train/.00003.tokens.part      a file that is being downloaded, locked by that process

The name of a mirror has a hash of URL and manifest, so data that changed at its origin gets another
mirror. Every file is compared with the manifest before it gets its name. Nothing is removed: the
cache is a folder of files that you may delete. Only `get_file` of fsspec is used: its caches
(``filecache::``) ask twice for each file, compare nothing and lock nothing.
"""

import errno
import fcntl
import hashlib
import importlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from maskwright.console import tell
from maskwright.errors import ConfigError, ShardError
from maskwright.extras import how_to_install
from maskwright.files import read_json, writing_file
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    MANIFEST_NAME,
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

FOLDER = "MASKWRIGHT_CACHE"
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 1.0  # before the second attempt; doubled each time, 15 seconds in all
AT_ONCE = 8  # parallel downloads of a process, because a single connection to a store is slow
_ORIGIN_NAME = ".origin"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# In these schemes the part before @ is an Azure container, or a name on the hub with a revision.
_NO_USER = ("abfs", "abfss", "wasb", "wasbs", "hf")
_CHECK = (
    "Check the URL and the credentials (AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN or "
    "~/.config/fsspec)."
)
_PASSING = (408, 425, 429)  # HTTP: request timeout, too early, too many requests


def is_remote(name: str) -> bool:
    """Return True if `name` is a URL, not a path."""
    return _URL.match(name) is not None


class Mirror(PreparedFolder):
    """A remote prepared folder, of which the files needed so far are here."""

    def __init__(self, path: Path) -> None:
        """Use `open_mirror` or `open_folder`."""
        super().__init__(path)
        self.url = (path / _ORIGIN_NAME).read_text(encoding="utf-8")
        self.name = self.url.rpartition("/")[2]
        self.num_retries = 0
        self._infos = {COUNTS_NAME: self.manifest.unigram_counts}
        for split in SPLITS:
            for shard in self.manifest.splits[split].shards:
                files = {f"{split}/{shard.name}.{kind}": info for kind, info in shard.files.items()}
                self._infos |= files

    def find_missing(self, split: str) -> dict[str, int]:
        """Return the sizes of the files of a split that are not here yet, by name."""
        return {
            name: info.num_bytes
            for name, info in self._infos.items()
            if name.startswith(f"{split}/") and not (self.path / name).exists()
        }

    def check(self, split: str, verify: Verify) -> None:
        """Remove files that differ from the manifest, and download the counts and ends.

        Raises:
            ShardError: these cannot be downloaded, or do not match the manifest.
        """
        for name, info in self._infos.items():
            path = self.path / name
            if name.startswith((COUNTS_NAME, f"{split}/")) and path.exists():
                try:
                    check_file(path, info, verify)
                except ShardError:
                    tell(f"{self.describe(name)} is damaged. It is downloaded again.")
                    path.unlink(missing_ok=True)
        shards = self.manifest.splits[split].shards
        names = [COUNTS_NAME, *(f"{split}/{shard.name}.{ENDS}" for shard in shards)]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self.place, names))
        try:
            for shard in shards:
                check_ends(self.path / split, shard, self.manifest.dtype)
        except ShardError as damage:
            raise ShardError(str(damage).replace(str(self.path), self.url)) from None

    def place(self, name: str) -> Path:
        """Return the path of a file in the folder; download the file if it is missing.

        If several threads or processes need it, one of them downloads it. Raise ShardError if it
        cannot be downloaded.
        """
        path = self.path / name
        if path.exists():
            return path
        part = path.with_name(f".{path.name}.part")
        with _locking(part):
            if path.exists():  # another process was faster
                part.unlink(missing_ok=True)
            else:
                self.num_retries += _download(self.url, name, part, self._check)
                part.replace(path)
        return path

    def _check(self, name: str, path: Path) -> None:
        if (info := self._infos.get(name)) is None:  # of the tokenizer the manifest has no hash
            _check_json(name, path)
            return
        check_file(path, info, "full")
        if name.endswith(f".{TOKENS}"):
            check_ids(path, self.manifest)

    def describe(self, name: str) -> str:
        return f"the local copy of {self.url}/{name}"


MIRRORS: dict[Path, Mirror] = {}  # the mirrors that this process has opened


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
    for folder in (TOKENIZER_NAME, *SPLITS):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in ((MANIFEST_NAME, manifest), (_ORIGIN_NAME, url.encode())):
        with writing_file(path / name) as written:
            written.write(content)
    return MIRRORS.setdefault(path, Mirror(path))


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


def _download(url: str, name: str, path: Path, check: Callable[[str, Path], None]) -> int:
    """Download ``URL/NAME`` to `path`, and `check` the file; return the number of retries.

    Raise ShardError if it is missing or forbidden, which is not retried, or every attempt failed.
    """
    try:
        system, root = importlib.import_module("fsspec").core.url_to_fs(url)
    except Exception as error:  # every backend has its own exceptions
        remedy = find_remedy(error) or _CHECK
        raise ShardError(f"{url} cannot be reached: {_describe(error)}. {remedy}") from None
    complaint = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            tell(f"{url}/{name}: {complaint} (attempt {attempt} of {ATTEMPTS}; retrying)")
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            system.get_file(f"{root}/{name}", str(path))
            check(name, path)
            return attempt
        except Exception as error:
            complaint = _describe(error).replace(str(path), "it")
            if (remedy := find_remedy(error)) is not None:
                raise ShardError(f"{url}/{name} cannot be read: {complaint}. {remedy}") from None
    raise ShardError(
        f"{url}/{name} could not be downloaded in {ATTEMPTS} attempts. The last error: {complaint}."
        " Check the connection, or copy the prepared folder there again."
    )


def _describe(error: Exception) -> str:
    kind = "" if isinstance(error, ShardError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}".rstrip(".: ")


def find_remedy(error: Exception) -> str | None:
    """Return the remedy of an error; None if another attempt may succeed.

    fsspec imports its backends late, so errors are known by HTTP status or by the name of a class.
    """
    if isinstance(error, ImportError):
        return f"{how_to_install('remote')} (s3, gs, hf, http), or install the package of others."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        folder = cache_folder()
        return f"Delete old folders in {folder}, or set {FOLDER} to a folder with more space."
    status = getattr(error, "status", None)  # of aiohttp
    is_refused = isinstance(status, int) and 400 <= status < 500 and status not in _PASSING
    is_final = isinstance(error, FileNotFoundError | PermissionError | NotImplementedError)
    return _CHECK if is_refused or is_final or "Credential" in type(error).__name__ else None


def _check_json(name: str, path: Path) -> None:
    """Raise ShardError unless a file is valid JSON, which a truncated file is not."""
    try:
        read_json(path)
    except ValueError as error:
        raise ShardError(f"{name} is not JSON: {error}") from None


def check_credentials(url: str) -> None:
    """Raise a ShardError if a URL contains a credential, because runs and logs store the URL."""
    scheme, _, rest = url.partition("://")
    user, at, _ = re.split("[/?#]", rest)[0].rpartition("@")
    has_user = at and (":" in user or scheme.lower() not in _NO_USER)
    if has_user or ("?" in rest and scheme.lower() in ("http", "https")):
        raise ShardError(
            f"{scheme}://… contains a user, a password or a query (?…), and runs and logs store "
            "the URL. Remove it, and put credentials where fsspec looks for them "
            "(~/.config/fsspec)."
        )


def cache_folder() -> Path:
    """Return ``$MASKWRIGHT_CACHE``, or ``maskwright`` in the system's cache folder.

    Raises:
        ConfigError: there is no home folder.
    """
    system = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(os.environ.get(FOLDER) or f"{system}/maskwright").expanduser().absolute()
    except RuntimeError:
        rule = "must be set, as there is no home folder"
        raise ConfigError(FOLDER, os.environ.get(FOLDER), rule, "Name a folder.") from None


@contextmanager
def _locking(path: Path) -> Generator[None]:
    """Hold an exclusive lock on a file, which is created if needed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            remedy = f"Set {FOLDER} to a folder on a local disk."
            raise ShardError(f"{path} cannot be locked ({error.strerror}). {remedy}") from None
        yield
    finally:
        os.close(descriptor)
