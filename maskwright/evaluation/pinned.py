"""Held-out text with pinned masks: the same rows and the same masked tokens every time.

Masks are a function of (fixed seed, row), by default at 15 % with 80/10/10, whatever rate and
strategy a run trains with. Two evaluations thus differ only by the model, and models with the same
tokenizer can be compared on the same rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import Batch, SpecialIds, collate
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.loader import Corpus, RowSource, StepRequest
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.rows import DataPosition, Rows
from maskwright.distributed.world import ALONE, World

PINNED_SEED = 20_181_011  # not the run's seed: runs with different seeds share their masks
PINNED_MASKING = MaskingConfig(rate=0.15)
_ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class PinnedText:
    """A fixed sample of the rows of a corpus, with at most `num_slots` token positions."""

    corpus: Corpus
    config: DataConfig
    special: SpecialIds
    vocabulary: Vocabulary
    num_slots: int

    def batches(
        self, masking: MaskingConfig = PINNED_MASKING, world: World = ALONE
    ) -> Iterator[Batch]:
        """Yield the rows as masked batches, with this rank's rows of every batch."""
        for batch, _ in self._load(masking, world):
            yield batch

    def batches_with_words(
        self, masking: MaskingConfig
    ) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Yield masked batches and, for each of their T positions, the index of its word."""
        for batch, rows in self._load(masking, ALONE):
            clean = collate(rows, batch.context.row_length, self.corpus, self.special)
            yield batch, np.cumsum(clean.word_starts.reshape(-1), dtype=np.int64)

    def _load(self, masking: MaskingConfig, world: World) -> Iterator[tuple[Batch, Rows]]:
        """Yield batches and their rows of all ranks; a smaller sample is a prefix of a larger."""
        length, rate = self.config.max_seq_length, masking.highest_rate
        masker = Masker(masking, self.vocabulary)
        source = RowSource(self.corpus, self.config, self.special, masker, PINNED_SEED, world)
        planner, position = source.planner(length), DataPosition(length)
        remaining = max(1, self.num_slots // length)
        while remaining > 0:
            rows, _ = planner.plan_rows(position, min(_ROWS_AT_ONCE, remaining))
            in_epoch = rows.take(np.flatnonzero(rows.epochs == 0))
            if not len(in_epoch):
                return
            request = StepRequest(length, len(in_epoch), len(in_epoch), rate)
            loaded = source.load(request, position)
            yield loaded.micro_batches[0], in_epoch
            position = loaded.next_position
            remaining = remaining - len(rows) if len(in_epoch) == len(rows) else 0
