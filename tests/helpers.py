"""A corpus made of numbers and the small parts around it, for the tests of several packages."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.data.batch import SpecialIds
from maskwright.data.config import DataConfig, MaskingConfig, PairKind
from maskwright.data.loader import LoadedStep, RowSource
from maskwright.data.masking import Masker, Vocabulary
from maskwright.distributed.world import ALONE, World

PAD, UNK, CLS, SEP, MASK = range(5)
NUM_SPECIAL = 5
VOCAB_SIZE = 64


class SyntheticCorpus:
    """Documents that count upwards through the ordinary ids, each from a random one on.

    Easy to learn, and every token is known from its neighbors. `word_starts` are random.
    """

    def __init__(self, document_lengths: Sequence[int], seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.document_lengths = np.asarray(document_lengths, dtype=np.int64)
        counts = [np.arange(length) + generator.integers(1000) for length in document_lengths]
        ids = np.concatenate([np.zeros(0, np.int64), *counts]) % (VOCAB_SIZE - NUM_SPECIAL)
        self.ids = (ids + NUM_SPECIAL).astype(np.uint16)
        self.starts = generator.random(len(self.ids)) < 0.7

    def tokens(self, start: int, stop: int) -> NDArray[np.uint16]:
        return self.ids[start:stop]

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        return self.starts[start:stop]

    @property
    def unigram_counts(self) -> NDArray[np.int64]:
        return np.bincount(self.ids, minlength=VOCAB_SIZE).astype(np.int64)


def random_corpus(num_documents: int = 40, longest: int = 60, seed: int = 0) -> SyntheticCorpus:
    """Documents of 0 to `longest` tokens."""
    lengths = np.random.default_rng(seed).integers(0, longest + 1, num_documents)
    return SyntheticCorpus(lengths.tolist(), seed)


def special_ids(wrap: bool = True) -> SpecialIds:
    return SpecialIds(PAD, CLS, SEP, wrap)


def vocabulary(counts: NDArray[np.int64] | None = None) -> Vocabulary:
    """64 ids of which the first five are special."""
    ordinary = np.arange(NUM_SPECIAL, VOCAB_SIZE)
    counts = np.ones(VOCAB_SIZE, np.int64) if counts is None else counts
    return Vocabulary(VOCAB_SIZE, MASK, ordinary, counts)


def count_predictions(loaded: LoadedStep) -> int:
    """Return the number of tokens to predict in the micro-batches of a rank."""
    return sum(batch.num_predictions for batch in loaded.micro_batches)


def row_source(
    corpus: SyntheticCorpus,
    *,
    max_seq_length: int = 16,
    special_tokens: bool = True,
    packed: bool = True,
    masking: MaskingConfig | None = None,
    seed: int = 0,
    world: World = ALONE,
    pairs: PairKind | None = None,
) -> RowSource:
    """Rows of `corpus`, masked at 15 % unless `masking` says otherwise."""
    config = DataConfig(max_seq_length, special_tokens, packed, pairs)
    masker = Masker(masking or MaskingConfig(), vocabulary(corpus.unigram_counts))
    return RowSource(corpus, config, special_ids(special_tokens), masker, seed, world)
