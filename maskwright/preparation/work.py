"""The plan of a preparation and the files of its stages, below ``OUT/.work-ID``.

The coordinator writes the plan. A task reads it, writes its files by temporary name and rename, and
last its report (``STAGE/NNNNN.json``), which marks it as done. A task may run twice at the same
time: both write the same bytes, to temporary files of their own.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright import errors
from maskwright.config import from_mapping, to_mapping
from maskwright.corpus.blocks import Block
from maskwright.corpus.readers.records import FIRST
from maskwright.errors import MaskwrightError, ShardError
from maskwright.files import replacing_file, write_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.sorted_runs import (
    Part,
    Records,
    RunWriter,
    read_all,
    read_between,
    read_parts,
    writing_runs,
)
from maskwright.selection.near_duplicates import BAND, NUM_HASHES, PAIR, count_bands

READ, EXACT, NEAR, CONNECT, VOCABULARY, ENCODE, FINISH = (
    "read", "exact", "near", "connect", "vocabulary", "encode", "finish",
)  # fmt: skip
PLAN_NAME, LOGS = "plan.json", "logs"
# The fingerprint of a document and its key (block and index). A repaired text has a second record,
# for its original.
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("key", "<u8"), ("characters", "<u4"),
                ("bytes", "<u4")])  # fmt: skip
BLOCK = np.uint64(32)  # a key is block << 32 | index
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
    "sampled", np.dtype([("drawn", "<u8"), ("high", "<u8"), ("key", "<u8"), ("size", "<u8")])
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
        """Whether near duplicates are searched for."""
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
        """Return the path of a file of task `number`."""
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

    def forget_failures(self) -> None:
        """Remove all stored errors."""
        for path in self.folder.glob("*/*.error"):
            path.unlink()

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

    def writing(self, stage: str, number: int, kind: Kind) -> AbstractContextManager[RunWriter]:
        """Open a file of task `number` for writing records."""
        return writing_runs(self.path(stage, number, kind.suffix), kind.dtype)

    def read(self, stage: str, number: int, kind: Kind) -> Records:
        """Return the records that task `number` wrote."""
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
        dropped = np.fromiter(self.read_drops(block), np.uint64) + (np.uint64(block) << BLOCK)
        stay = (keys["key"] < BEFORE_MENDING) & ~np.isin(keys["key"], dropped)
        return np.sort(keys[stay], order="key")

    def read_drops(self, block: int) -> dict[int, tuple[str, int]]:
        """Return the dropped documents of a block by index, each with the stage that dropped it and
        the block of the document that is kept.

        A document that is held out by name is never dropped as a near duplicate.
        """
        found: dict[int, tuple[str, int]] = {}
        for stage in self._drop_stages()[self.is_held_out(block) and self.plan.finds_near :]:
            paths, bounds = self._list_files(stage, DROPS), (block << 32, (block + 1) << 32)
            for drops in read_between(paths, DROPS.dtype, *bounds):
                indices = (drops["key"] - (np.uint64(block) << BLOCK)).tolist()
                for index, by in zip(indices, (drops["by"] >> BLOCK).tolist(), strict=True):
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


def add_counts(counted: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Add up counts by reason, in order; the reason of bad lines names the first such line."""
    total, firsts = Counter[str](), dict[str, str]()
    for reason, count in chain.from_iterable(counts.items() for counts in counted):
        kind, is_first, _ = reason.partition(FIRST)
        total[firsts.setdefault(kind, reason) if is_first else reason] += count
    return total
