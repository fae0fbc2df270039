"""From a position in the data to the batches of one step, prepared while the last step computes.

Nothing here remembers anything that matters: a step's batches are a function of the request and
the position, so a loader can be thrown away and built again at any step.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import Batch, SpecialIds, TokenSource, build_batch
from maskwright.data.config import DataConfig
from maskwright.data.masking.corruption import Masker
from maskwright.data.rows import DataPosition, RowPlanner
from maskwright.data.segments import SegmentTable


class Corpus(TokenSource, Protocol):
    """A prepared corpus, as `maskwright.shards` opens it."""

    @property
    def document_lengths(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class StepRequest:
    """What one step wants: `num_rows` rows, `micro_batch_rows` at a time, at a mask rate."""

    row_length: int
    num_rows: int
    micro_batch_rows: int
    mask_rate: float


@dataclass(frozen=True)
class LoadedStep:
    """The micro-batches of one step, what was asked for, and the position after them."""

    request: StepRequest
    micro_batches: tuple[Batch, ...]
    next_position: DataPosition

    @property
    def num_tokens(self) -> int:
        return sum(batch.num_tokens for batch in self.micro_batches)

    @property
    def num_predictions(self) -> int:
        return sum(batch.num_predictions for batch in self.micro_batches)


class RowSource:
    """Rows of one corpus at any row length, masked.

    Args:
        corpus: must hold at least one token, or asking for rows is a `ShardError`.
        seed: names order and masks.
    """

    def __init__(
        self, corpus: Corpus, config: DataConfig, special: SpecialIds, masker: Masker, seed: int
    ) -> None:
        self.corpus, self.config, self.special = corpus, config, special
        self.masker, self.seed = masker, seed
        self._planners: dict[int, RowPlanner] = {}

    def planner(self, row_length: int) -> RowPlanner:
        """The planner of rows of one length."""
        if row_length not in self._planners:
            extra = self.config.extra_slots
            table = SegmentTable(self.corpus.document_lengths, row_length - extra)
            self._planners[row_length] = RowPlanner(
                table, row_length, extra, self.seed, self.config.packed
            )
        return self._planners[row_length]

    def load(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        """The batches of one step. A change of the row length begins a new epoch."""
        if request.row_length != position.row_length:
            position = DataPosition(request.row_length, position.epoch + 1, 0)
        rows, position = self.planner(request.row_length).plan_rows(position, request.num_rows)
        batches = tuple(
            build_batch(
                rows[first : first + request.micro_batch_rows],
                request.row_length,
                self.corpus,
                self.special,
                self.masker,
                request.mask_rate,
                self.seed,
            )
            for first in range(0, len(rows), request.micro_batch_rows)
        )
        return LoadedStep(request, batches, position)


class Prefetcher:
    """Loads the next step in a thread while this one computes."""

    def __init__(self, load: Callable[[StepRequest, DataPosition], LoadedStep]) -> None:
        self._load = load
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: tuple[DataPosition, Future[LoadedStep]] | None = None

    def start(self, request: StepRequest, position: DataPosition) -> None:
        """Begins to load the step that follows `position`."""
        self._ahead = (position, self._thread.submit(self._load, request, position))

    def take(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        """The step at `position`: the one begun by `start`, else loaded now.

        Where a schedule follows the clock, the step begun ahead may differ from `request`; it is
        taken all the same, and its own `request` says what it is.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == position:
            return ahead[1].result()
        return self._load(request, position)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
