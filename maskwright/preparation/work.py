"""The plan of a preparation and the files of its stages, below ``OUT/.work-ID``.

The coordinator writes the plan. A task reads it, writes its files by temporary name and rename, and
last its report (``STAGE/NNNNN.json``), which marks it as done. A task may run twice at the same
time: both write the same bytes, to temporary files of their own.

Records are in the order of documents (SIGNATURES, SAMPLED) or in runs, each sorted by the first
field, a uint64 (KEYS, BANDS, PAIRS, DROPS). A task that owns a range of values reads it from many
files of runs by binary search. So a stage that regroups records writes one file per task, not one
per pair of tasks, and a task holds a bounded number of records, however large files and ranges are.
"""

import json
import mmap
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright import errors
from maskwright.config import from_mapping, to_mapping
from maskwright.corpus.blocks import Block
from maskwright.corpus.readers.records import FIRST
from maskwright.errors import MaskwrightError, ShardError
from maskwright.files import replacing_file, write_json, writing_file
from maskwright.preparation.config import PrepareConfig
from maskwright.selection.near_duplicates import BAND, NUM_HASHES, PAIR, count_bands

RUN = 1 << 16  # records in a run; the last run of a file has fewer
CHUNK = 1 << 20  # records that a task holds at a time: about 80 MB with its results

Records = NDArray[Any]  # of a structured dtype
Values = NDArray[np.uint64]
Part = Callable[[], Iterable[Records]]  # reads its chunks

READ, EXACT, NEAR, CONNECT, VOCABULARY, ENCODE, FINISH = (
    "read", "exact", "near", "connect", "vocabulary", "encode", "finish",
)  # fmt: skip
PLAN_NAME, LOGS = "plan.json", "logs"
# The `fingerprint_pair` of a document and its key (block and index). A repaired text has a second
# record, for its original.
KEY = np.dtype([("fingerprint", "<u8"), ("second", "<u8"), ("key", "<u8"), ("characters", "<u4"),
                ("bytes", "<u4")])  # fmt: skip
BLOCK_BITS = np.uint64(32)  # of a key, below the number of its block: the index in the block
BEFORE_MENDING = np.uint64(1 << 63)  # added to the key of an original
TEXTS, PIECES = "texts.zst", "pieces.zst"
_MAX_RANGES, _BLOCKS_A_RANGE = 64, 16
SEPARATOR = b"\0"  # no cleaned text contains it
_READ_BYTES = 1 << 20

Facts = dict[str, Any]  # the report of a task, as JSON


class Kind(NamedTuple):
    """A kind of record file."""

    suffix: str
    dtype: np.dtype[Any]


KEYS = Kind("keys", KEY)
SIGNATURES = Kind("signatures", np.dtype((np.uint32, (NUM_HASHES,))))
BANDS = Kind("bands", BAND)
# Candidate pieces for the tokenizer's sample.
SAMPLED = Kind(
    "sampled",
    np.dtype([("drawn", "<u8"), ("fingerprint", "<u8"), ("key", "<u8"), ("size", "<u8")]),
)
PAIRS = Kind("pairs", PAIR)
# Dropped documents, each with the document that is kept instead.
DROPS = Kind("drops", np.dtype([("key", "<u8"), ("by", "<u8")]))


@dataclass(frozen=True)
class Plan:
    """The input and the configuration of a preparation.

    Attributes:
        paths: the input, as the user names it.
        blocks: the blocks of ``corpus.valid_text``, then those of `paths`.
        num_held_out: the number of blocks of ``corpus.valid_text``.
        ignored: counts of ignored files by reason.
        sample_share: bytes of candidates for the tokenizer's sample by estimated byte of text.
        directory: the working directory of the coordinator, as paths may be relative.
    """

    paths: list[str]
    blocks: list[Block]
    num_held_out: int
    ignored: dict[str, int]
    config: PrepareConfig
    seed: int
    sample_share: float
    directory: str

    @property
    def num_ranges(self) -> int:
        """The number of ranges of hashes: fewer than blocks, so that there are few files."""
        return min(_MAX_RANGES, -(-len(self.blocks) // _BLOCKS_A_RANGE))

    @property
    def finds_exact(self) -> bool:
        """Whether exact duplicates are searched for: among all documents, or of held-out ones."""
        return self.config.corpus.deduplicate or self.num_held_out > 0

    @property
    def finds_near(self) -> bool:
        return self.config.select.near_duplicates > 0

    def count_tasks(self, stage: str) -> int:
        """Return the number of tasks of a stage."""
        if stage in (READ, ENCODE):
            return len(self.blocks)
        if stage == NEAR:
            return self.num_ranges * count_bands(self.config.select.near_duplicates)
        return 1 if stage in (VOCABULARY, FINISH) else self.num_ranges

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        blocks = [block.to_plain() for block in self.blocks]
        write_json(path, {**vars(self), "blocks": blocks, "config": to_mapping(self.config)})

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read what `write` wrote."""
        values = json.loads(path.read_text(encoding="utf-8"))
        blocks = [Block.from_plain(block) for block in values.pop("blocks")]
        config = from_mapping(PrepareConfig, values.pop("config"))
        return cls(blocks=blocks, config=config, **values)


class Work:
    """The files of the stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._components: str | None = None

    @property
    def out(self) -> Path:
        """The folder that is prepared."""
        return self.folder.parent

    @cached_property
    def plan(self) -> Plan:
        return Plan.read(self.folder / PLAN_NAME)

    def path(self, stage: str, number: int, suffix: str) -> Path:
        return self.folder / stage / f"{number:05d}.{suffix}"

    def is_done(self, stage: str, number: int) -> bool:
        """Return True if the report of a task exists; a listing of the folder could be stale."""
        if stage == CONNECT:  # all rounds
            return self.last_round() is not None
        return self.path(stage, number, "json").exists()

    def report_done(self, stage: str, number: int, facts: Facts) -> None:
        """Write the report of a task, which marks it as done; its other files are complete."""
        with replacing_file(self.path(stage, number, "json"), shared=True) as temporary:
            temporary.write_text(json.dumps(facts), encoding="utf-8")

    def report_failure(self, stage: str, rank: int, error: Exception) -> None:
        """Store an error for the process that waits for the stage, or for ``--status``."""
        if not isinstance(error, MaskwrightError):
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            error = ShardError(
                f"{self.out}: the stage {stage} failed on {os.uname().nodename}: {what}. Logs are "
                f"in {self.folder / LOGS}."
            )
        (self.folder / stage).mkdir(exist_ok=True)  # it may have failed before its first task
        write_json(self.path(stage, rank, "error"), [type(error).__name__, str(error)])

    def find_failure(self, stage: str) -> MaskwrightError | None:
        """Return the first stored error of a stage, or None."""
        for path in sorted((self.folder / stage).glob("*.error")):
            kind, message = json.loads(path.read_text(encoding="utf-8"))
            error = MaskwrightError.__new__(getattr(errors, kind, ShardError))
            Exception.__init__(error, message)
            return error
        return None

    def facts(self, stage: str, number: int = 0) -> Facts:
        """Return the report of a finished task."""
        return json.loads(self.path(stage, number, "json").read_text(encoding="utf-8"))

    def all_facts(self, stage: str) -> Iterator[Facts]:
        """Yield the reports of the tasks of a stage, in order."""
        return (self.facts(stage, number) for number in range(self.plan.count_tasks(stage)))

    def is_held_out(self, block: int) -> bool:
        """Return True if a block belongs to ``corpus.valid_text``."""
        return block < self.plan.num_held_out

    def read_texts(self, block: int, name: str = TEXTS) -> Iterator[str]:
        """Yield the cleaned documents of a block in order, or the texts of its file `name`."""
        import zstandard  # late: training from shards needs none

        rest = b""
        with self.path(READ, block, name).open("rb") as packed:
            reader = zstandard.ZstdDecompressor().stream_reader(packed)
            while piece := reader.read(_READ_BYTES):
                *texts, rest = (rest + piece).split(SEPARATOR)
                yield from (text.decode() for text in texts)

    def read_text(self, block: int, index: int) -> str:
        """Return one cleaned document."""
        return next(islice(self.read_texts(block), index, None))

    def writing(self, stage: str, number: int, kind: Kind) -> "AbstractContextManager[RunWriter]":
        """Open a file of task `number` for writing records."""
        return writing_runs(self.path(stage, number, kind.suffix), kind.dtype)

    def read(self, stage: str, number: int, kind: Kind) -> Records:
        return read_all(self.path(stage, number, kind.suffix), kind.dtype)

    def read_range(self, stage: str, kind: Kind, low: int, high: int) -> Iterator[Part]:
        """Yield the records from `low` to below `high` that a stage wrote; see `read_parts`."""
        return read_parts(self._list_files(stage, kind), kind.dtype, low, high)

    def _list_files(self, stage: str, kind: Kind) -> list[Path]:
        numbers = range(self.plan.count_tasks(stage))
        return [self.path(stage, number, kind.suffix) for number in numbers]

    def read_kept_keys(self, block: int) -> Records:
        """Return the keys of the kept documents of a block, sorted by index."""
        keys = self.read(READ, block, KEYS)
        dropped = np.fromiter(self.read_drops(block), np.uint64) + np.uint64(first_key(block))
        stay = (keys["key"] < BEFORE_MENDING) & ~np.isin(keys["key"], dropped)
        return np.sort(keys[stay], order="key")

    def read_drops(self, block: int) -> dict[int, tuple[str, int]]:
        """Return the dropped documents of a block by index, each with the stage that dropped it and
        the block of the document that is kept.

        A document of ``corpus.valid_text`` is never dropped as a near duplicate.
        """
        found: dict[int, tuple[str, int]] = {}
        for stage in self._drop_stages()[self.is_held_out(block) and self.plan.finds_near :]:
            paths, bounds = self._list_files(stage, DROPS), (first_key(block), first_key(block + 1))
            for drops in read_between(paths, DROPS.dtype, *bounds):
                indices = (drops["key"] - np.uint64(bounds[0])).tolist()
                for index, by in zip(indices, (drops["by"] >> BLOCK_BITS).tolist(), strict=True):
                    found[index] = stage, by
        return found

    def list_dropped(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the keys of all dropped documents, in arrays; a key may occur twice."""
        for stage in self._drop_stages():
            for number in range(self.plan.num_ranges):
                yield self.read(stage, number, DROPS)["key"]

    def _drop_stages(self) -> list[str]:
        near = self.last_round() if self.plan.finds_near else None
        assert near or not self.plan.finds_near, "the components are not complete yet"
        return [stage for stage in (near, EXACT if self.plan.finds_exact else None) if stage]

    def last_round(self) -> str | None:
        """Return the name of the first `connect` round that changed nothing, or None.

        After that round the components of near duplicates are complete.
        """
        if self._components is None:
            tasks, number = range(self.plan.num_ranges), 1
            while all(self.is_done(stage := f"{CONNECT}-{number}", task) for task in tasks):
                if not any(facts["changed"] for facts in self.all_facts(stage)):
                    self._components = stage
                    break
                number += 1
        return self._components


def first_key(block: int) -> int:
    """Return the key of the first document of a block."""
    return block << int(BLOCK_BITS)


def add_counts(counted: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Add up counts by reason, in order; the reason of bad lines names the first such line."""
    total, firsts = Counter[str](), dict[str, str]()
    for reason, count in chain.from_iterable(counts.items() for counts in counted):
        kind, is_first, _ = reason.partition(FIRST)
        total[firsts.setdefault(kind, reason) if is_first else reason] += count
    return total


class RunWriter:
    """Writer of records, which may arrive in any order."""

    def __init__(self, file: BinaryIO, dtype: np.dtype[Any]) -> None:
        self._file, self._waiting, self._num_waiting = file, [np.empty(0, dtype)], 0

    def add(self, records: Records, least: int = RUN) -> None:
        """Add records; write runs while at least `least` records are buffered."""
        self._waiting.append(records)
        self._num_waiting += len(records)
        if self._num_waiting >= least:
            waiting = np.concatenate(self._waiting)
            while len(waiting) >= least:
                run, waiting = waiting[:RUN], waiting[RUN:]
                order = np.argsort(run[run.dtype.descr[0][0]], kind="stable")  # by the first field
                self._file.write(run[order].tobytes())
            self._waiting, self._num_waiting = [waiting], len(waiting)


@contextmanager
def writing_runs(path: Path, dtype: np.dtype[Any]) -> Generator[RunWriter]:
    """Yield a writer; the file appears if the block succeeds."""
    with writing_file(path) as file:
        writer = RunWriter(file, dtype)
        yield writer
        writer.add(np.empty(0, dtype), least=1)


def read_all(path: Path, dtype: np.dtype[Any]) -> Records:
    """Return the records of a file, memory-mapped (`np.memmap` takes three times as long)."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def read_between(
    paths: Iterable[Path], dtype: np.dtype[Any], low: int, high: int
) -> Iterator[Records]:
    """Yield the records with values from `low` to below `high`, in chunks of about `CHUNK`."""
    gathered, size = list[Records](), 0
    sort_field, is_open = dtype.descr[0][0], high >= 1 << 64  # more than a uint64 holds
    for path in paths:
        records = read_all(path, dtype)
        for start in range(0, len(records), RUN):
            run = records[start : start + RUN]
            values = run[sort_field]
            begin = int(np.searchsorted(values, np.uint64(low)))
            end = len(run) if is_open else int(np.searchsorted(values, np.uint64(high)))
            gathered.append(np.array(run[begin:end]))
            size += end - begin
        if size >= CHUNK:
            yield np.concatenate(gathered)
            gathered, size = [], 0
    if size:
        yield np.concatenate(gathered)


def read_parts(paths: Sequence[Path], dtype: np.dtype[Any], low: int, high: int) -> Iterator[Part]:
    """Cut a range into parts of about one chunk each; calling a part reads its chunks.

    A range of a single chunk is read once and reused.
    """
    first = list(islice(read_between(paths, dtype, low, high), 2))
    if len(first) < 2:
        yield partial(iter, first)
        return
    first.clear()
    parts = -(-sum(map(len, read_between(paths, dtype, low, high))) // CHUNK)
    for part in range(parts):
        yield partial(read_between, paths, dtype, *cut_range(low, high, part, parts))


def cut_range(low: int, high: int, number: int, of: int) -> tuple[int, int]:
    """Return the bounds of part `number` of the values from `low` to below `high`, cut evenly."""
    width = high - low
    return low + width * number // of, low + width * (number + 1) // of


class Leaders:
    """The smallest rank among the records of each identity, which is a pair of uint64.

    Taking the smallest is commutative, so the result does not depend on the order of chunks.
    """

    def __init__(self) -> None:
        self._first, self._second, self._rank = (np.empty(0, np.uint64) for _ in range(3))

    def add(self, first: Values, second: Values, rank: Values) -> None:
        """Add records: their identity [N], [N] and rank [N]."""
        added = ((self._first, first), (self._second, second), (self._rank, rank))
        first, second, rank = map(np.concatenate, added)
        order = np.lexsort((rank, second, first))
        first, second, rank = first[order], second[order], rank[order]
        new = np.ones(len(first), np.bool_)
        new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        self._first, self._second, self._rank = first[new], second[new], rank[new]

    def find(self, first: Values, second: Values) -> Values:
        """Return the smallest rank of each of these identities, all of which were added."""
        places = np.searchsorted(self._first, first)
        while (others := self._second[places] != second).any():  # only `first` is equal
            places[others] += 1
        return self._rank[places]
