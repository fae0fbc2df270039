"""A prepared folder, local or a mirror whose files are downloaded when needed.

A mirror is stored in the cache under a name with a hash of its URL and its manifest, so data that
changed at its origin gets another mirror. Each downloaded file is checked against the manifest.
"""

import hashlib
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

from maskwright.console import tell
from maskwright.errors import ShardError
from maskwright.files import read_json, write_text
from maskwright.shards.cache import (
    ORIGIN_NAME,
    Cache,
    cache_folder,
    claim_path,
    leave,
    locking_file,
)
from maskwright.shards.checks import REMEDY, Verify, check_ends, check_file, check_ids, check_shard
from maskwright.shards.manifest import (
    COUNTS_NAME,
    ENDS,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    SPLITS,
    TOKENIZER_NAME,
    TOKENS,
    FileInfo,
    read_manifest,
)
from maskwright.shards.remote import RemoteFolder, is_remote

Item = TypeVar("Item")


def run_in_threads(
    items: Iterable[Item],
    do: Callable[[Item], object],
    conclude: Callable[[list[Item]], None],
    num_threads: int,
) -> None:
    """Call `do` for all `items`, in order, in threads; return at once.

    The threads are daemons, so the program may end before they do.

    Args:
        conclude: called at the end with the items for which `do` raised a ShardError.
    """
    waiting, turn = iter(items), threading.Lock()
    failed: list[Item] = []

    def work() -> None:
        while True:
            with turn:
                item = next(waiting, None)
            if item is None:
                return
            try:
                do(item)
            except ShardError:
                failed.append(item)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(num_threads)]

    def wait() -> None:
        for thread in threads:
            thread.join()
        conclude(failed)

    for thread in (*threads, threading.Thread(target=wait, daemon=True)):
        thread.start()


_AT_ONCE = 8  # parallel downloads of a process, because a single connection to a store is slow
_MAX_URL_BYTES = 10_000
_COPY_AGAIN = "Copy the prepared folder there again."


class PreparedFolder:
    """A local prepared folder.

    Attributes:
        path: the path of the folder.
        name: a name that distinguishes it from other folders.

    Raises:
        ShardError: the manifest is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        self.manifest = read_manifest(path)

    def check(self, split: str, verify: Verify) -> None:
        """Compare the files of a split, and the counts, with the manifest.

        Raises:
            ShardError: a file is missing or differs; the error names it.
        """
        check_file(self.path / COUNTS_NAME, self.manifest.unigram_counts, verify)
        for shard in self.manifest.splits[split].shards:
            check_shard(self.path / split, shard, self.manifest.dtype, verify)
            if verify == "full":
                check_ids(self.path / split / f"{shard.name}.{TOKENS}", self.manifest)

    def place(self, name: str) -> Path:
        """Return the path of a file in the folder, given as ``train/00000.tokens``."""
        return self.path / name

    def describe(self, name: str) -> str:
        """Return the name of the file that `place` returns, for messages."""
        return str(self.path / name)


File = tuple[PreparedFolder, str]  # a folder, and the name of a file in it


class Mirror(PreparedFolder):
    """A remote prepared folder, whose files are cached when they are first used.

    While the object exists, the cache does not remove files of the mirror.

    Attributes:
        remote: the remote folder.
    """

    def __init__(self, path: Path, fill: Callable[[], None]) -> None:
        """Use `open_mirror` or `open_folder`; for `fill` see `Cache.enter`."""
        self._cache = Cache()
        weakref.finalize(self, leave, self._cache.enter(path, fill))
        super().__init__(path)
        with (path / ORIGIN_NAME).open(encoding="utf-8") as file:
            self.remote = RemoteFolder(file.read(_MAX_URL_BYTES))
        self.name = self.remote.url.rpartition("/")[2]
        self._infos = {COUNTS_NAME: self.manifest.unigram_counts}
        for split in SPLITS:
            self._infos |= dict(self._list_files(split))

    def _list_files(self, split: str) -> Iterator[tuple[str, FileInfo]]:
        for shard in self.manifest.splits[split].shards:
            for kind, info in shard.files.items():
                yield f"{split}/{shard.name}.{kind}", info

    def check(self, split: str, verify: Verify) -> None:
        """Remove files that differ from the manifest, and download the counts and ends.

        Raises:
            ShardError: these cannot be downloaded, or do not match the manifest.
        """
        for name in (COUNTS_NAME, *dict(self._list_files(split))):
            path = self.path / name
            if path.exists():
                try:
                    check_file(path, self._infos[name], verify)
                except ShardError as damage:
                    text = str(damage).replace(str(path), self.describe(name))
                    tell(f"{text.removesuffix(REMEDY)}It is downloaded again.")
                    path.unlink(missing_ok=True)
        shards = self.manifest.splits[split].shards
        ends = [f"{split}/{shard.name}.{ENDS}" for shard in shards]
        self._place_all([COUNTS_NAME, *ends])
        try:
            for shard in shards:
                check_ends(self.path / split, shard, self.manifest.dtype)
        except ShardError as damage:
            raise ShardError(str(damage).replace(str(self.path), self.remote.url)) from None

    def _place_all(self, names: list[str]) -> None:
        missing = [name for name in names if not (self.path / name).exists()]
        self._claim(missing)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            try:
                for fetched in [threads.submit(self.place, name) for name in missing]:
                    fetched.result()
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    def place(self, name: str) -> Path:
        """Return the path of a file in the folder; download the file if it is missing.

        If several threads or processes need it, one of them downloads it.

        Raises:
            ShardError: it cannot be downloaded, or there is no space for it.
        """
        path = self.path / name
        if path.exists():
            return path
        self._claim([name])
        claim = claim_path(path)
        with locking_file(claim):
            if not path.exists():
                most = self._infos[name].num_bytes
                self.remote.fetch(name, path, most, lambda fetched: self._check(name, fetched))
            claim.unlink()
        return path

    def describe(self, name: str) -> str:
        return f"the local copy of {self.remote.url}/{name}"

    def claim_split(self, split: str) -> list[int]:
        """Reserve space for the missing files of a split; return their sizes in bytes.

        Raises:
            ShardError: there is not enough space.
        """
        missing = [name for name, _ in self._list_files(split) if not (self.path / name).exists()]
        self._claim(missing)
        return [self._infos[name].num_bytes for name in missing]

    def _claim(self, names: Iterable[str]) -> None:
        files = {self.path / name: self._infos[name].num_bytes for name in names}
        self._cache.claim(files, self.remote.url)

    def _check(self, name: str, path: Path) -> None:
        try:
            check_file(path, self._infos[name], "full")
        except ShardError as damage:
            raise ShardError(f"{str(damage).removesuffix(REMEDY)}{_COPY_AGAIN}") from None
        if name.endswith(f".{TOKENS}"):
            check_ids(path, self.manifest)


def fetch_ahead(folders: Iterable[PreparedFolder], split: str, files: Iterable[File]) -> None:
    """Start downloading the missing files of a split, for those of `folders` that are mirrors.

    A file that is needed sooner is downloaded at once. A failed download is tried again when the
    file is needed, and raises then if it fails again.

    Args:
        files: all files of the split, in the order of their downloads.

    Raises:
        ShardError: there is not enough space.
    """
    mirrors = [folder for folder in folders if isinstance(folder, Mirror)]
    missing = {mirror: sizes for mirror in mirrors if (sizes := mirror.claim_split(split))}
    if not missing:
        return
    what: list[str] = []
    for mirror, sizes in missing.items():
        what.append(f"{sum(sizes) / 1e6:,.1f} MB of {mirror.remote.url}/{split}")
        tell(f"downloading {what[-1]} ({len(sizes):,} files) to {mirror.path} in the background")
    begun = time.monotonic()

    def conclude(failed: list[File]) -> None:
        seconds = time.monotonic() - begun
        retries = sum(mirror.remote.num_retries for mirror in missing)
        lost = f", {len(failed):,} files could not be downloaded" if failed else ""
        all_of_it = " and ".join(what)
        tell(f"downloaded {all_of_it} in {seconds:,.1f} seconds, {retries:,} retries{lost}")

    run_in_threads(files, lambda file: file[0].place(file[1]), conclude, _AT_ONCE)


MIRRORS: dict[Path, Mirror] = {}  # the mirrors that this process has opened; it never closes them


def open_folder(name: Path | str) -> PreparedFolder:
    """Open the prepared folder at a path or a URL.

    Raises:
        ShardError: there is no prepared folder, or its manifest is damaged.
    """
    if isinstance(name, str) and is_remote(name):
        return open_mirror(name)
    path = Path(name)
    # Other folders may contain any file names, so only folders in the cache can be mirrors.
    if (path / ORIGIN_NAME).is_file():
        root, found = cache_folder(), path.resolve()  # runs store resolved paths
        if found.parent == root.resolve():
            return _enter(root / found.name, lambda: None)
    return PreparedFolder(path)


@cache
def open_mirror(url: str) -> Mirror:
    """Open the mirror of the prepared folder at `url`, as it was when first requested.

    Raises:
        ShardError: there is no prepared folder, it cannot be reached, or its manifest is damaged.
    """
    remote = RemoteFolder(url)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / MANIFEST_NAME
        remote.fetch(MANIFEST_NAME, file, MAX_MANIFEST_BYTES, check_json)
        try:
            read_manifest(Path(scratch))
        except ShardError as error:
            raise ShardError(str(error).replace(scratch, remote.url)) from None
        manifest = file.read_bytes()
    stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in remote.url.rpartition("/")[2])
    digest = hashlib.sha256(remote.url.encode() + b"\n" + manifest).hexdigest()
    path = cache_folder() / f"{stem[:50]}-{digest[:16]}"

    def fill() -> None:
        for folder in (TOKENIZER_NAME, *SPLITS):
            (path / folder).mkdir(parents=True, exist_ok=True)
        target = path / MANIFEST_NAME
        if not target.exists() or target.read_bytes() != manifest:
            write_text(target, manifest.decode())
        if not (path / ORIGIN_NAME).exists():  # else other processes may hold locks on this file
            write_text(path / ORIGIN_NAME, remote.url)

    return _enter(path, fill)


def _enter(path: Path, fill: Callable[[], None]) -> Mirror:
    if path not in MIRRORS:
        MIRRORS[path] = Mirror(path, fill)
    return MIRRORS[path]


def name_path(path: Path) -> str:
    """Return the name of a path for messages: a file in a mirror is named by its origin."""
    found = path.resolve()
    for root, mirror in MIRRORS.items():
        if found.is_relative_to(root.resolve()):
            below = found.relative_to(root.resolve()).as_posix()
            return mirror.remote.url if below == "." else f"{mirror.remote.url}/{below}"
    return str(path)


def check_json(path: Path) -> None:
    """Raise ShardError unless a file is valid JSON, which a truncated file is not."""
    try:
        read_json(path, MAX_MANIFEST_BYTES)
    except ValueError as error:
        raise ShardError(f"{path} is not JSON: {error}") from None
