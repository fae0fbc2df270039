"""Held-out text with pinned masks: the same rows and the same hidden tokens every time.

The masks are a function of (fixed seed, row), at 15 % with 80/10/10 unless said otherwise,
whatever rate and strategy a run trains with. So two evaluations differ by the model alone, and
models with the same tokenizer can be compared on the same rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import Batch, SpecialIds, build_batch, lay_out
from maskwright.data.config import DataConfig
from maskwright.data.loader import Corpus
from maskwright.data.masking.config import MaskingConfig
from maskwright.data.masking.corruption import Masker, Vocabulary
from maskwright.data.rows import DataPosition, Row, RowPlanner
from maskwright.data.segments import SegmentTable
from maskwright.data.share import cut_share
from maskwright.distributed.world import ALONE, World

PINNED_SEED = 20_181_011  # not the run's seed: runs with different seeds share their masks
PINNED_MASKING = MaskingConfig(rate=0.15)
# Whole words, all of whose tokens the model sees as [MASK]: none is given away.
WORD_MASKING = MaskingConfig(rate=0.15, strategy="words", mask_share=1.0, random_share=0.0)
_ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class PinnedText:
    """A fixed sample of a corpus as rows, each once.

    Attributes:
        num_slots: at most so many token slots.
    """

    corpus: Corpus
    config: DataConfig
    special: SpecialIds
    vocabulary: Vocabulary
    num_slots: int

    def plan_rows(self) -> Iterator[list[Row]]:
        """The rows, some at a time; a smaller sample is the beginning of a larger one."""
        length, extra = self.config.max_seq_length, self.config.extra_slots
        segments = SegmentTable(self.corpus.document_lengths, length - extra)
        planner = RowPlanner(segments, length, extra, PINNED_SEED, self.config.packed)
        position = DataPosition(length)
        remaining = max(1, self.num_slots // length)
        while remaining > 0:
            rows, position = planner.plan_rows(position, min(_ROWS_AT_ONCE, remaining))
            in_epoch = [row for row in rows if row.epoch == 0]
            if in_epoch:
                yield in_epoch
            remaining = remaining - len(rows) if len(in_epoch) == len(rows) else 0

    def batches(
        self, masking: MaskingConfig = PINNED_MASKING, world: World = ALONE
    ) -> Iterator[Batch]:
        """The rows as masked batches; each rank gets its own rows of every batch."""
        masker = Masker(masking, self.vocabulary)
        for rows in self.plan_rows():
            for part in cut_share(rows, len(rows), world):
                yield self._build(part, masker, masking.highest_rate)

    def batches_with_words(
        self, masking: MaskingConfig
    ) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Masked batches and, for each of their [T] slots, the number of its word."""
        masker = Masker(masking, self.vocabulary)
        for rows in self.plan_rows():
            clean = lay_out(rows, self.config.max_seq_length, self.corpus, self.special)
            words = np.cumsum(clean.word_starts.reshape(-1), dtype=np.int64)
            yield self._build(rows, masker, masking.highest_rate), words

    def _build(self, rows: list[Row], masker: Masker, rate: float) -> Batch:
        length = self.config.max_seq_length
        return build_batch(rows, length, self.corpus, self.special, masker, rate, PINNED_SEED)
