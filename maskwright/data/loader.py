"""From a position in the data to one rank's micro-batches of a step, loaded ahead.

All ranks plan the same rows of the same global batch, and each takes every n-th one. Empty rows
(padding alone, no predictions) fill the remainder, so that every rank computes the same number of
micro-batches of one shape: collectives stay in step, and one compiled graph is enough. The loss is
not affected, because it is a sum over predictions.

Nothing here has state that matters: a step's batches are a function of the request and the
position, so a loader can be discarded and built again at any step.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import Batch, build_batch
from maskwright.data.collate import SpecialIds, TokenSource
from maskwright.data.config import DataConfig
from maskwright.data.counter_rng import Purpose, derive_keys, to_unit
from maskwright.data.masking import Masker
from maskwright.data.mixture import Mixture, MixturePlanner
from maskwright.data.pairs import PairMaker
from maskwright.data.rows import DataPosition, Row, RowPlanner, Rows, SegmentTable, WindowPlanner
from maskwright.distributed.world import ALONE, World

EMPTY_ROW = Row(epoch=0, number=0, segments=())


def slice_rank(rows: Rows, most_rows: int, world: World) -> list[Rows]:
    """Return this rank's rows of a step, as micro-batches of one size, at most `most_rows`.

    Number and size of the micro-batches depend on ``len(rows)`` alone, not on the rank.
    """
    num_rows = max(1, -(-len(rows) // world.size))
    num_batches = -(-num_rows // most_rows)
    size = -(-num_rows // num_batches)
    own = rows if world.size == 1 else rows.take(np.arange(world.rank, len(rows), world.size))
    missing = num_batches * size - len(own)
    if missing:
        own = Rows.concat([own, Rows.of([EMPTY_ROW] * missing)])
    return [own.slice(first, first + size) for first in range(0, len(own), size)]


class Corpus(TokenSource, Protocol):
    """A prepared corpus, as `maskwright.shards` opens it."""

    @property
    def document_lengths(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class StepRequest:
    """A request for one step of all ranks together: `num_rows` rows, masked at a rate.

    A rank computes at most `micro_batch_rows` of them at a time.
    """

    row_length: int
    num_rows: int
    micro_batch_rows: int
    mask_rate: float


@dataclass(frozen=True)
class LoadedStep:
    """One rank's micro-batches of one step.

    Attributes:
        request: the request that it answers.
        position: the position of the step's first row.
        next_position: the position of the next step.
        num_tokens: tokens of the whole step, all ranks together.
        is_causal: whether its rows are causal; see `MaskingConfig.causal_share`.
    """

    request: StepRequest
    micro_batches: tuple[Batch, ...]
    position: DataPosition
    next_position: DataPosition
    num_tokens: int
    is_causal: bool = False

    @property
    def num_predictions(self) -> int:
        """The number of tokens to predict in this rank's micro-batches."""
        return sum(batch.num_predictions for batch in self.micro_batches)

    @property
    def num_pairs(self) -> int:
        """The number of labeled pairs in this rank's micro-batches."""
        return sum(batch.num_pairs for batch in self.micro_batches)

    def pin(self) -> "LoadedStep":
        """Return the same step with pinned batches; see `Batch.pin`."""
        return replace(self, micro_batches=tuple(batch.pin() for batch in self.micro_batches))


class RowSource:
    """Masked rows of a corpus, at any row length.

    Args:
        corpus: the tokens; planning rows of an empty corpus raises a `ShardError`.
        seed: determines order, masks and pairs.
        world: the ranks, each of which loads its own rows of a step.
        mixture: the sources of the corpus, if it has several.

    Raises:
        ShardError: ``data.pairs = next`` needs two documents, and the corpus holds fewer.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: DataConfig,
        special: SpecialIds,
        masker: Masker,
        seed: int,
        world: World = ALONE,
        mixture: Mixture | None = None,
    ) -> None:
        self.corpus, self.config, self.special = corpus, config, special
        self.masker, self.seed, self.world, self.mixture = masker, seed, world, mixture
        lengths = corpus.document_lengths
        self.pair_maker = PairMaker(config.pairs, lengths) if config.pairs else None
        self._planners: dict[int, WindowPlanner] = {}

    def planner(self, row_length: int) -> WindowPlanner:
        """Return the planner of rows of one length."""
        if row_length not in self._planners:
            self._planners[row_length] = self._build_planner(row_length)
        return self._planners[row_length]

    def _build_planner(self, row_length: int) -> WindowPlanner:
        lengths, packed = self.corpus.document_lengths, self.config.packed
        extra = self.config.extra_slots
        longest = row_length - extra
        if self.mixture is None:
            table = SegmentTable(lengths, longest)
            return RowPlanner(table, row_length, extra, self.seed, packed)
        tables = self.mixture.split(lengths, longest)
        passes = self.mixture.passes
        return MixturePlanner(tables, passes, row_length, extra, self.seed, packed)

    def load(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        """Load the batches of one step. A change of the row length begins a new epoch."""
        if request.row_length != position.row_length:
            position = DataPosition(request.row_length, position.epoch + 1, 0)
        planner = self.planner(request.row_length)
        rows, next_position = planner.plan_rows(position, request.num_rows)
        is_causal = self._is_causal(position)
        batches = tuple(
            build_batch(
                part,
                request.row_length,
                self.corpus,
                self.special,
                self.masker,
                request.mask_rate,
                self.seed,
                is_causal,
                self.pair_maker,
            )
            for part in slice_rank(rows, request.micro_batch_rows, self.world)
        )
        num_tokens = planner.count_tokens(rows)
        return LoadedStep(request, batches, position, next_position, num_tokens, is_causal)

    def _is_causal(self, position: DataPosition) -> bool:
        """Draw for the step's first row, so that all ranks, and a resumed run, agree."""
        share = self.masker.config.causal_share
        keys = derive_keys(self.seed, position.epoch, position.row, Purpose.CAUSAL_STEP)
        return share > 0 and bool(to_unit(keys)[0] < share)


class Prefetcher:
    """Loads the next step in a thread while this one computes.

    Args:
        pins: whether to pin the batches, which a GPU then copies while it computes.
    """

    def __init__(
        self, load: Callable[[StepRequest, DataPosition], LoadedStep], pins: bool = False
    ) -> None:
        self._load = (lambda request, position: load(request, position).pin()) if pins else load
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: tuple[DataPosition, Future[LoadedStep]] | None = None

    def start(self, request: StepRequest, position: DataPosition) -> None:
        """Begin to load the step at `position`."""
        self._ahead = (position, self._thread.submit(self._load, request, position))

    def take(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        """Return the step at `position`: the one begun by `start`, or one loaded now.

        Where a schedule follows the clock, the step loaded ahead may be of another request; it is
        returned all the same, with the request that it answers.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == position:
            return ahead[1].result()
        return self._load(request, position)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(cancel_futures=True)
