"""Pairs of texts, read back from the batches that training would see.

The corpus numbers its tokens, so each says by itself where it is from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from maskwright.data.batch import Batch, collate
from maskwright.data.config import DataConfig, MaskingConfig, PairKind
from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import LoadedStep, RowSource, StepRequest
from maskwright.data.masking import IGNORED, Masker, Vocabulary
from maskwright.data.pairs import MIN_TOKENS, PairMaker, SegmentPair, pairs_per_row, split_segment
from maskwright.data.rows import DataPosition, Row, Rows
from maskwright.distributed.world import ALONE, World
from tests.data.test_exactness import NumberedCorpus
from tests.helpers import CLS, MASK, NUM_SPECIAL, PAD, SEP, special_ids


@dataclass(frozen=True)
class Setting:
    """A corpus, and how it is cut into pairs."""

    lengths: list[int]
    pairs: PairKind | None = "next"
    row_length: int = 33
    packed: bool = True
    seed: int = 0

    def source(self, world: World = ALONE) -> RowSource:
        corpus = NumberedCorpus(self.lengths)
        size = NUM_SPECIAL + corpus.num_tokens
        words = Vocabulary(size, MASK, np.arange(NUM_SPECIAL, size), np.ones(size, np.int64))
        config = DataConfig(self.row_length, packed=self.packed, pairs=self.pairs)
        masker = Masker(MaskingConfig(), words)
        return RowSource(corpus, config, special_ids(), masker, self.seed, world)

    def load(
        self, num_rows: int, micro_batch_rows: int | None = None, world: World = ALONE
    ) -> LoadedStep:
        request = StepRequest(self.row_length, num_rows, micro_batch_rows or num_rows, 0.15)
        return self.source(world).load(request, DataPosition(self.row_length))

    @property
    def document_of(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


documents = st.lists(st.integers(0, 90), min_size=2, max_size=30).filter(
    lambda lengths: np.count_nonzero(lengths) > 1
)
settings = st.builds(
    Setting,
    lengths=documents,
    pairs=st.sampled_from(["next", "order"]),
    row_length=st.sampled_from([8, 16, 33, 64]),
    packed=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)


@dataclass(frozen=True)
class Found:
    """A segment as a model sees it: places of the tokens of both texts, and the label."""

    first: np.ndarray
    second: np.ndarray
    label: int | None


def read_pairs(batch: Batch) -> Iterator[Found]:
    """The segments of a batch; checks special tokens, types and places on the way."""
    assert batch.token_type_ids is not None
    assert batch.pair_positions is not None
    assert batch.pair_labels is not None
    ids = batch.input_ids.numpy().copy()
    used = batch.masked_labels != IGNORED
    ids[batch.masked_positions[used]] = batch.masked_labels[used]
    judged = batch.pair_labels != IGNORED
    slots = (batch.pair_positions[judged].tolist(), batch.pair_labels[judged].tolist())
    labels = dict(zip(*slots, strict=True))
    assert len(labels) == batch.num_pairs == int(judged.sum())
    assert not batch.pair_positions[~judged].any()
    types, bounds = batch.token_type_ids.numpy(), batch.context.cu_seqlens.tolist()
    for begin, end in pairwise(bounds):
        if begin == end or ids[begin] == PAD:
            assert not types[begin:end].any()
            continue
        middle, last = np.flatnonzero(ids[begin:end] == SEP) + begin
        assert (ids[begin], last) == (CLS, end - 1)
        assert not types[begin : middle + 1].any()
        assert types[middle + 1 : end].all()
        first, second = ids[begin + 1 : middle], ids[middle + 1 : last]
        yield Found(first - NUM_SPECIAL, second - NUM_SPECIAL, labels.pop(begin, None))
    assert not labels


def is_run(*texts: np.ndarray) -> bool:
    tokens = np.concatenate(texts)
    return bool((np.diff(tokens) == 1).all())


@given(settings)
def test_true_pairs_follow_and_others_do_not(setting: Setting) -> None:
    loaded = setting.load(40)
    [batch] = loaded.micro_batches
    assert loaded.num_tokens == batch.num_tokens
    assert batch.num_tokens == int((batch.input_ids != PAD).sum())
    document, starts = setting.document_of, NumberedCorpus(setting.lengths).starts
    for pair in read_pairs(batch):
        if len(pair.second) == 0:
            assert len(pair.first) < MIN_TOKENS
            assert pair.label is None
        elif pair.label != 1:
            assert is_run(pair.first, pair.second)
            assert document[pair.first[0]] == document[pair.second[-1]]
        elif setting.pairs == "order":
            assert is_run(pair.second, pair.first)
            assert starts[pair.second[0]]
        else:
            assert is_run(pair.first)
            assert is_run(pair.second)
            assert len(set(document[pair.second])) == 1
            assert document[pair.first[0]] != document[pair.second[0]]
            assert pair.second[0] == 0 or document[pair.second[0]] == document[pair.second[0] - 1]


@given(settings)
def test_pairs_take_the_same_rows_whatever_their_labels(setting: Setting) -> None:
    """The lengths of the segments are the planner's, so that packing is what it would be."""
    source, length = setting.source(), setting.row_length
    rows, _ = source.planner(length).plan_rows(DataPosition(length), 20)
    planned = [span for row in rows for span in row.segments]
    found = list(read_pairs(setting.load(20).micro_batches[0]))
    assert [len(f.first) + len(f.second) for f in found] == [n for _, n in planned]
    kept = [f.first[0] == s for f, (s, _) in zip(found, planned, strict=True) if f.label != 1]
    assert all(kept)


@effort(max_examples=30)
@given(settings, st.integers(1, 9), st.sampled_from([1, 2, 3]))
def test_cuts_and_ranks_see_the_same_pairs(setting: Setting, micro: int, size: int) -> None:
    def show(batches: tuple[Batch, ...]) -> list[tuple]:
        pairs = [pair for batch in batches for pair in read_pairs(batch)]
        return sorted((f.first.tolist(), f.second.tolist(), str(f.label)) for f in pairs)

    whole = setting.load(12).micro_batches
    ranks = [replace(ALONE, rank=rank, size=size) for rank in range(size)]
    parts = [batch for world in ranks for batch in setting.load(12, micro, world).micro_batches]
    assert show(tuple(parts)) == show(whole)
    assert sum(batch.num_pairs for batch in parts) == whole[0].num_pairs
    assert len({tuple(len(t) for t in tensors_of(batch)) for batch in parts}) == 1


def tensors_of(batch: Batch) -> list[torch.Tensor]:
    return [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]


@effort(max_examples=20)
@given(settings, st.integers(0, 8))
def test_a_resumed_run_sees_the_same_pairs(setting: Setting, steps: int) -> None:
    request = StepRequest(setting.row_length, 3, 3, 0.15)
    source, position = setting.source(), DataPosition(setting.row_length)
    for _ in range(steps):
        position = source.load(request, position).next_position
    one = source.load(request, position).micro_batches[0]
    other = setting.source().load(request, position).micro_batches[0]
    for a, b in zip(tensors_of(one), tensors_of(other), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["next", "order"])
def test_labels_are_balanced_whatever_the_length(kind: PairKind) -> None:
    setting = Setting([60] * 400 + [3], kind, row_length=64)
    pairs = [p for p in read_pairs(setting.load(800).micro_batches[0]) if p.label is not None]
    labels = np.array([pair.label for pair in pairs])
    assert labels.mean() == pytest.approx(0.5, abs=2 / len(labels) ** 0.5)
    # Nor does the place of the cut tell anything (in "order" it is the other text that is longer).
    cuts = [len(p.second if kind == "order" and p.label else p.first) for p in pairs]
    bound = 3.5 / len(labels) ** 0.5
    assert abs(np.corrcoef(cuts, labels)[0, 1]) < bound
    shares = np.array(cuts) / [len(p.first) + len(p.second) for p in pairs]
    assert 0.2 < shares.min() < 0.3
    assert 0.7 < shares.max() < 0.8


def test_epochs_and_seeds_differ() -> None:
    setting = Setting([61] * 50, row_length=64, packed=False)

    def labels(seed: int, epoch: int) -> dict[int, int | None]:
        source = replace(setting, seed=seed).source()
        loaded = source.load(StepRequest(64, 50, 50, 0.15), DataPosition(64, epoch))
        return {int(p.first[0]): p.label for p in read_pairs(loaded.micro_batches[0])}

    seen = [labels(0, 0), labels(0, 1), labels(1, 0)]
    assert len({str(sorted(found.items())) for found in seen}) == 3
    assert len({tuple(sorted(found)) for found in seen}) == 1


def test_a_false_text_is_not_known_by_its_edges() -> None:
    """It begins with a word, and ends with its document just where the true one would."""
    setting = Setting([100, 140, 75, 120] * 30, row_length=64, packed=False)
    document, starts = setting.document_of, NumberedCorpus(setting.lengths).starts
    source = setting.source()
    rows, _ = source.planner(64).plan_rows(DataPosition(64), 150)
    ends = np.cumsum(setting.lengths)
    count = 0
    for row, pair in zip(rows, read_pairs(setting.load(150).micro_batches[0]), strict=True):
        [(start, length)] = row.segments
        if pair.label == 1:
            count += 1
            assert starts[pair.second[0]]
            assert document[pair.second[0]] == document[pair.second[0] - 1]
            assert (pair.second[-1] + 1 in ends) == (start + length in ends)
    assert count > 50


def test_a_pair_is_laid_out_as_it_should_be() -> None:
    corpus = NumberedCorpus([9, 20])
    rows = Rows.of([Row(0, 0, ((0, 9), (9, 2)))])
    pairs = [[SegmentPair(((0, 5), (20, 4)), 1), SegmentPair(((9, 2), (11, 0)), IGNORED)]]
    clean = collate(rows, 20, corpus, special_ids(), pairs)
    a, b, c = ([*range(NUM_SPECIAL + i, NUM_SPECIAL + j)] for i, j in [(0, 5), (20, 24), (9, 11)])
    assert clean.ids.tolist() == [[CLS, *a, SEP, *b, SEP, CLS, *c, SEP, SEP, *3 * [PAD]]]
    assert clean.pairs is not None
    assert clean.pairs.token_type_ids.tolist() == [[0] * 7 + [1] * 5 + [0] * 4 + [1] + [0] * 3]
    assert (clean.pairs.positions.tolist(), clean.pairs.labels.tolist()) == ([[0]], [[1]])
    assert clean.positions.tolist() == [[*range(12), *range(5), *range(3)]]
    assert clean.segment_ids.tolist() == [[0] * 12 + [1] * 5 + [2] * 3]
    assert clean.word_starts[0, [1, 7, 13]].all()  # what is cut begins anew
    assert clean.num_tokens == 17


def test_without_pairs_there_is_nothing_of_them() -> None:
    [batch] = Setting([20, 20], None).load(2).micro_batches
    assert (batch.token_type_ids, batch.pair_positions, batch.pair_labels) == (None, None, None)
    assert batch.num_pairs == 0


@given(st.integers(MIN_TOKENS, 60), st.floats(0, 1, exclude_max=True), st.integers(0, 3))
def test_a_cut_is_where_a_word_begins(length: int, cut: float, seed: int) -> None:
    corpus = NumberedCorpus([200 + seed])
    (start, first), (middle, second) = split_segment((7, length), cut, corpus)
    assert (start, middle, first + second) == (7, 7 + first, length)
    assert min(first, second) >= 1
    beginnings = np.flatnonzero(corpus.starts[8 : 7 + length]) + 1
    middle_half = [n for n in beginnings if length // 4 <= n <= length - length // 4]
    if len(beginnings):
        assert first in (middle_half or beginnings)
    else:
        assert length // 4 <= first <= length - length // 4


def test_where_no_word_begins_texts_are_found_all_the_same() -> None:
    corpus = NumberedCorpus([40, 40])
    corpus.starts[:] = False
    rows = Rows.of(Row(0, n, ((0, 30),)) for n in range(20))
    keys = derive_keys(0, 0, np.arange(20))
    pairs = PairMaker("next", corpus.document_lengths).make_pairs(rows, 33, keys, corpus)
    others = [pair for [pair] in pairs if pair.label == 1]
    assert others
    assert all(pair.texts[1][0] >= 40 for pair in others)


def test_half_a_word_at_an_edge_gives_no_order_away() -> None:
    corpus = NumberedCorpus([402])  # of which 70 % begin a word
    maker, keys = PairMaker("order", corpus.document_lengths), derive_keys(0, 0, np.arange(300))
    rows = Rows.of(Row(0, n, ((n, 40),)) for n in range(300))
    pairs = maker.make_pairs(rows, 43, keys, corpus)
    has_label = np.array([pair.label != IGNORED for [pair] in pairs])
    assert np.array_equal(has_label, corpus.starts[:300] & corpus.starts[40:340])
    assert 10 < has_label.sum() < 290
    assert all(pair.texts[0][0] == n for n, [pair] in enumerate(pairs) if not has_label[n])


def test_where_no_other_text_is_long_enough_the_true_one_stays() -> None:
    setting = Setting([500, 3, 3, 2], row_length=64)
    labels = {pair.label for pair in read_pairs(setting.load(8).micro_batches[0])}
    assert labels == {None, 0}


def test_a_crowded_row_has_as_many_labels_as_slots() -> None:
    setting = Setting([5] * 60, row_length=32)
    [batch] = setting.load(5).micro_batches
    found = list(read_pairs(batch))
    assert len(found) == 20
    assert batch.num_pairs == 10 == 5 * pairs_per_row(32)
