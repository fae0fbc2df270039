"""Loading of one rank's micro-batches of a step from a position in the data, with prefetching.

All ranks plan the same rows of the same global batch, and each of n ranks takes every n-th row.
Empty rows (padding without predictions) fill the remainder, so that every rank computes the same
number of micro-batches of one shape: collectives stay in step, and one compiled graph is enough.
The loss is not affected, because it is a sum over predictions.

A step's batches are a function of the request and the position, so a loader can be rebuilt at any
step.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch, SpecialIds, build_batch
from maskwright.data.config import DataConfig
from maskwright.data.counter_rng import Bits, Purpose, derive_keys, draw_bits, to_unit
from maskwright.data.masking import Masker
from maskwright.data.mixture import Mixture, MixturePlanner
from maskwright.data.pairs import PairMaker
from maskwright.data.rows import (
    DataPosition,
    Row,
    RowPlanner,
    Rows,
    SegmentTable,
    TokenSource,
    WindowPlanner,
)
from maskwright.distributed.world import ALONE, World

EMPTY_ROW = Row(epoch=0, number=0, segments=())


def count_micro_batches(num_rows: int, most_rows: int, num_ranks: int) -> tuple[int, int]:
    """Return the number and the size of the micro-batches of each rank, at most `most_rows`."""
    rows_of_rank = max(1, -(-num_rows // num_ranks))
    num_batches = -(-rows_of_rank // most_rows)
    return num_batches, -(-rows_of_rank // num_batches)


def slice_rank(rows: Rows, most_rows: int, world: World) -> list[Rows]:
    """Return this rank's rows of a step, as micro-batches of one size."""
    num_batches, size = count_micro_batches(len(rows), most_rows, world.size)
    own = rows if world.size == 1 else rows.take(np.arange(world.rank, len(rows), world.size))
    missing = num_batches * size - len(own)
    if missing:
        own = Rows.concat([own, Rows.of([EMPTY_ROW] * missing)])
    return [own.slice(first, first + size) for first in range(0, len(own), size)]


def bound_segments(rows: Rows, most_rows: int, world: World) -> int:
    """Return a number of segment boundaries that suffices for every micro-batch of every rank.

    A CUDA graph (train/capture.py) needs the same shapes on all ranks and in all steps; empty
    segments fill up.
    """
    num_batches, size = count_micro_batches(len(rows), most_rows, world.size)
    counts = np.zeros((num_batches, size, world.size), np.int64)
    counts.reshape(-1)[: len(rows)] = rows.counts
    # A row may end in padding, which is a segment of its own.
    return 1 << (int(counts.sum(axis=1).max()) + size).bit_length()


class Corpus(TokenSource, Protocol):
    """A prepared corpus, as `maskwright.shards` opens it."""

    @property
    def document_lengths(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class TokensInMemory:
    """A corpus in memory: the tokens of all documents, and which of them begin a word."""

    ids: NDArray[np.unsignedinteger]
    begins_word: NDArray[np.bool_]
    document_lengths: NDArray[np.int64]

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger]:
        return self.ids[start:stop]

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        return self.begins_word[start:stop]


@dataclass(frozen=True)
class StepRequest:
    """A request for one step of all ranks together: `num_rows` rows, masked at a rate.

    A micro-batch has at most `micro_batch_rows` rows. The softmax of each prediction is over
    `num_candidates` tokens; 0: all.
    """

    row_length: int
    num_rows: int
    micro_batch_rows: int
    mask_rate: float
    num_candidates: int = 0


@dataclass(frozen=True)
class LoadedStep:
    """One rank's micro-batches of one step.

    Attributes:
        request: the request for which it was loaded.
        position: the position of the step's first row.
        next_position: the position of the next step.
        num_tokens: the number of tokens of the whole step, over all ranks.
        is_causal: True if its rows are causal; see `MaskingConfig.causal_share`.
        num_bounds: the number of segment boundaries of a batch on all ranks; 0: as each has.
    """

    request: StepRequest
    micro_batches: tuple[Batch, ...]
    position: DataPosition
    next_position: DataPosition
    num_tokens: int
    is_causal: bool = False
    num_bounds: int = 0


class RowSource:
    """Masked rows of a corpus, at any row length.

    Args:
        corpus: the tokens; planning rows of an empty corpus raises a `ShardError`.
        seed: the seed of order, masks and pairs.
        world: the rank whose rows are loaded, and the number of ranks.
        mixture: the sources of the corpus, if it has several.

    Raises:
        ShardError: ``data.pairs = next`` requires two documents, and the corpus holds fewer.
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
        self._by_frequency = np.argsort(-masker.vocabulary.unigram_counts, kind="stable")

    def planner(self, row_length: int) -> WindowPlanner:
        """Return the planner of rows of one length."""
        if row_length not in self._planners:
            self._planners[row_length] = self._build_planner(row_length)
        return self._planners[row_length]

    def _build_planner(self, row_length: int) -> WindowPlanner:
        lengths, extra = self.corpus.document_lengths, self.config.special_per_segment
        longest, shared = row_length - extra, (row_length, extra, self.seed, self.config.packed)
        if self.mixture is None:
            return RowPlanner(SegmentTable(lengths, longest), *shared)
        tables = self.mixture.split(lengths, longest)
        return MixturePlanner(tables, self.mixture.passes, *shared)

    def load(
        self, request: StepRequest, position: DataPosition, first: DataPosition | None = None
    ) -> LoadedStep:
        """Load the batches of one step. A change of the row length begins a new epoch.

        Args:
            first: the position of the step's first row, to load later rows of it.
        """
        if request.row_length != position.row_length:
            position = DataPosition(request.row_length, position.epoch + 1, 0)
        planner = self.planner(request.row_length)
        rows, next_position = planner.plan_rows(position, request.num_rows)
        # The draw depends on the step's first row, so that all ranks and a resumed run agree.
        first = first or position
        keys = derive_keys(self.seed, first.epoch, first.row)
        share = self.masker.config.causal_share
        drawn = to_unit(derive_keys(self.seed, first.epoch, first.row, Purpose.CAUSAL_STEP))[0]
        is_causal = share > 0 and bool(drawn < share)
        ids, offsets = self._draw_candidates(request.num_candidates, keys)
        built = (
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
        batches = tuple(replace(b, candidate_ids=ids, candidate_offsets=offsets) for b in built)
        num_tokens = planner.count_tokens(rows)
        bounds = 0
        if self.world.size > 1:
            bounds = bound_segments(rows, request.micro_batch_rows, self.world)
        return LoadedStep(request, batches, position, next_position, num_tokens, is_causal, bounds)

    def _draw_candidates(self, count: int, keys: Bits) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return ids and offsets of the candidates of a step; see `Batch`.

        In a narrow encoder, half of a step's time goes to the logits of the whole vocabulary. Half
        of the candidates are the most frequent tokens. The others are sampled uniformly, with
        weights that make the expected sum of exponentials that of the whole vocabulary
        (Bengio and Senécal, "Quick Training of Probabilistic Neural Nets by Importance Sampling",
        2003; Jean et al., "On Using Very Large Target Vocabulary", 2015).
        """
        if not 0 < count < len(self._by_frequency):
            return None, None
        frequent, others = np.split(self._by_frequency, [count // 2])
        num_drawn = count - len(frequent)
        bits = draw_bits(keys, Purpose.CANDIDATE, np.arange(len(others)))[0]
        drawn = others[np.sort(np.argpartition(bits, num_drawn - 1)[:num_drawn])]
        offsets = np.zeros(count, np.float32)
        offsets[len(frequent) :] = np.log(len(others) / num_drawn)
        return torch.from_numpy(np.concatenate([frequent, drawn])), torch.from_numpy(offsets)


class Prefetcher:
    """A thread that loads the next step during the current one.

    Args:
        pins: True to pin the batches, so that copies to a GPU overlap with computation.
    """

    def __init__(
        self, load: Callable[[StepRequest, DataPosition], LoadedStep], pins: bool = False
    ) -> None:
        self._source, self._pins = load, pins
        self._most_bounds: dict[tuple[int, int], int] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: tuple[DataPosition, Future[LoadedStep]] | None = None

    def start(self, request: StepRequest, position: DataPosition) -> None:
        """Begin to load the step at `position`."""
        self._ahead = (position, self._thread.submit(self._load, request, position))

    def take(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        """Return the step at `position`, either prefetched by `start` or loaded now.

        If a schedule depends on the clock, the prefetched step may be of a slightly different
        request. It is returned anyway; `LoadedStep.request` is the one for which it was loaded.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == position:
            return ahead[1].result()
        return self._load(request, position)

    def _load(self, request: StepRequest, position: DataPosition) -> LoadedStep:
        step = self._source(request, position)
        # Their number depends on the text, and every shape would be compiled and recorded anew.
        shape = (request.row_length, request.micro_batch_rows)
        counts = [len(batch.context.cu_seqlens) for batch in step.micro_batches]
        most = max(self._most_bounds.get(shape, 0), step.num_bounds, *counts, 0)
        self._most_bounds[shape] = most
        batches = (batch.with_bounds(most) for batch in step.micro_batches)
        batches = (batch.pin() if self._pins else batch for batch in batches)
        return replace(step, micro_batches=tuple(batches))

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(cancel_futures=True)
