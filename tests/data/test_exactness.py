"""Every token once an epoch, in its own document, masked exactly: whatever the settings.

The corpus numbers its tokens, so each says by itself where it belongs. Whole epochs are loaded
through `RowSource`, as training loads them, unmasked by their labels, and taken apart again.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskwright.data import rows as rows_module
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import LoadedStep, RowSource, StepRequest
from maskwright.data.masking import IGNORED, Masker, Vocabulary, draw_quotas
from maskwright.data.rows import DataPosition, Row, RowPlanner, SegmentTable
from tests.helpers import CLS, MASK, NUM_SPECIAL, PAD, SEP, special_ids

Ints = NDArray[np.int64]


class NumberedCorpus:
    """Token i of the corpus has the id ``NUM_SPECIAL + i``."""

    def __init__(self, document_lengths: list[int]) -> None:
        self.document_lengths = np.array(document_lengths, dtype=np.int64)
        self.num_tokens = sum(document_lengths)
        share = (0.05, 0.3, 0.7, 1.0)[self.num_tokens % 4]  # so that there are long words, too
        self.starts = np.random.default_rng(self.num_tokens).random(self.num_tokens) < share

    def tokens(self, start: int, stop: int) -> NDArray[np.uint32]:
        return np.arange(NUM_SPECIAL + start, NUM_SPECIAL + stop, dtype=np.uint32)

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        return self.starts[start:stop]


@dataclass(frozen=True)
class Setting:
    """A corpus and how it is cut, packed and masked."""

    lengths: list[int]
    row_length: int
    special_tokens: bool
    packed: bool
    masking: MaskingConfig
    seed: int
    window: int

    def source(self) -> RowSource:
        corpus = NumberedCorpus(self.lengths)
        size = NUM_SPECIAL + corpus.num_tokens
        ordinary = np.arange(NUM_SPECIAL, size)
        words = Vocabulary(size, MASK, ordinary, np.ones(size, np.int64))
        config = DataConfig(self.row_length, self.special_tokens, self.packed)
        special = special_ids(self.special_tokens)
        return RowSource(corpus, config, special, Masker(self.masking, words), self.seed)

    @contextmanager
    def windowed(self) -> Iterator[RowSource]:
        """The source, with its windows of `window` segments."""
        with patch.object(rows_module, "WINDOW_SEGMENTS", self.window):
            yield self.source()


# No tokens, one token, one segment, one more than that, and documents of many rows.
lengths_of_documents = st.one_of(
    st.just([1]),
    st.integers(1, 400).map(lambda length: [length]),
    st.lists(st.sampled_from([0, 0, 1, 2, 5, 6, 7, 8, 9, 14, 15, 16, 17, 200]), max_size=12),
    st.lists(st.integers(0, 40), max_size=40),
).filter(lambda lengths: sum(lengths) > 0)

maskings = st.builds(
    MaskingConfig,
    rate=st.sampled_from([0.01, 0.15, 0.3, 0.5, 0.97]),
    strategy=st.sampled_from(["tokens", "words", "spans"]),
    span_lengths=st.sampled_from(["geometric", "uniform"]),
    max_span_length=st.sampled_from([1, 3, 10, 50]),
    replacement=st.sampled_from(["uniform", "unigram"]),
)

settings = st.builds(
    Setting,
    lengths=lengths_of_documents,
    row_length=st.sampled_from([8, 9, 16, 33, 128]),
    special_tokens=st.booleans(),
    packed=st.booleans(),
    masking=maskings,
    seed=st.integers(0, 2**63 - 1),
    window=st.sampled_from([1, 2, 5, 64, 4096]),
)


@dataclass(frozen=True)
class Epoch:
    """The rows of one epoch: their plan, and [R, L] arrays as loaded."""

    rows: list[Row]
    inputs: Ints
    labels: Ints  # in their places; -100 elsewhere
    segment_ids: Ints
    positions: Ints

    @property
    def clean(self) -> Ints:
        """[R, L] the input with the labels put back."""
        return np.where(self.labels == IGNORED, self.inputs, self.labels)


def requests(setting: Setting, sizes: list[int]) -> Iterator[StepRequest]:
    """Steps of the given sizes, again and again, each in micro-batches of three rows at most."""
    while True:
        for size in sizes:
            yield StepRequest(setting.row_length, size, 3, setting.masking.rate)


def place_labels(loaded: LoadedStep, num_rows: int) -> list[Ints]:
    """Inputs, labels, segment numbers and positions of a step, [R, L]; fillers are taken off."""
    parts: list[list[Ints]] = []
    for batch in loaded.micro_batches:
        labels = np.full(len(batch.input_ids), IGNORED, np.int64)
        used = (batch.masked_labels != IGNORED).numpy()
        labels[batch.masked_positions.numpy()[used]] = batch.masked_labels.numpy()[used]
        assert (labels != IGNORED).sum() == used.sum() == batch.num_predictions
        fields = (batch.input_ids, batch.context.segment_ids, batch.context.positions)
        inputs, segments, positions = (tensor.numpy().astype(np.int64) for tensor in fields)
        assert (inputs != PAD).sum() == batch.num_tokens
        assert_bounds_are_those_of_segments(batch.context.cu_seqlens.numpy(), segments, positions)
        rows = [
            array.reshape(-1, batch.context.row_length)
            for array in (inputs, labels, segments, positions)
        ]
        parts.append(rows)
    whole = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    assert (whole[0][num_rows:] == PAD).all()
    assert loaded.num_tokens == (whole[0] != PAD).sum()
    return [array[:num_rows] for array in whole]


def assert_bounds_are_those_of_segments(bounds: Ints, segments: Ints, positions: Ints) -> None:
    """`cu_seqlens` are the places where a segment begins, each once, and then the end."""
    used = np.unique(bounds)
    assert bounds[0] == 0
    assert np.array_equal(bounds[: len(used)], used)
    begins = np.flatnonzero(positions == 0)
    assert np.array_equal(used, np.append(begins, len(positions)))
    lengths = np.diff(used)
    assert np.array_equal(positions, np.concatenate([np.arange(length) for length in lengths]))
    assert all(len(np.unique(part)) == 1 for part in np.split(segments, begins[1:]))


def load_epoch(setting: Setting, source: RowSource, epoch: int, sizes: list[int]) -> Epoch:
    """All rows of an epoch, and what `load` says of them; steps may reach into the next epoch."""
    position, rows, parts = DataPosition(setting.row_length, epoch), [], []
    planner = source.planner(setting.row_length)
    for request in requests(setting, sizes):
        planned, after = planner.plan_rows(position, request.num_rows)
        loaded = source.load(request, position)
        assert loaded.next_position == after
        rows += planned
        parts.append(place_labels(loaded, request.num_rows))
        position = after
        if rows[-1].epoch > epoch:
            break
    kept = [row.epoch == epoch for row in rows]
    arrays = [np.concatenate(array)[kept] for array in zip(*parts, strict=True)]
    return Epoch([row for row in rows if row.epoch == epoch], *arrays)


sizes_of_steps = st.lists(st.sampled_from([1, 2, 3, 7, 50]), min_size=1, max_size=4)


@given(settings, sizes_of_steps, st.sampled_from([0, 1, 10**6]))
def test_an_epoch_is_every_token_once_in_its_place_and_masked_exactly(
    setting: Setting, sizes: list[int], epoch: int
) -> None:
    with setting.windowed() as source:
        loaded = load_epoch(setting, source, epoch, sizes)
    tokens = np.sort(loaded.clean[loaded.clean >= NUM_SPECIAL]) - NUM_SPECIAL
    assert np.array_equal(tokens, np.arange(sum(setting.lengths)))
    assert_segments_are_pieces_of_one_document(setting, loaded)
    assert_masks_are_exact_and_touch_no_special_token(setting, epoch, loaded)


def assert_segments_are_pieces_of_one_document(setting: Setting, loaded: Epoch) -> None:
    """Between special tokens, if there are any."""
    extra = 2 * setting.special_tokens
    ends = np.cumsum(setting.lengths)
    for row, clean, segment_ids in zip(loaded.rows, loaded.clean, loaded.segment_ids, strict=True):
        assert 1 <= len(row.segments) <= (max(1, setting.row_length // 4) if setting.packed else 1)
        for number, (start, length) in enumerate(row.segments):
            ids = clean[segment_ids == number]
            assert len(ids) == length + extra
            if setting.special_tokens:
                assert (ids[0], ids[-1]) == (CLS, SEP)
                ids = ids[1:-1]
            assert np.array_equal(ids, NUM_SPECIAL + np.arange(start, start + length))
            first, last = np.searchsorted(ends, [start, start + length - 1], side="right")
            assert first == last
        assert (clean[segment_ids == len(row.segments)] == PAD).all()


def assert_masks_are_exact_and_touch_no_special_token(
    setting: Setting, epoch: int, loaded: Epoch
) -> None:
    hidden, ordinary = loaded.labels != IGNORED, loaded.clean >= NUM_SPECIAL
    assert not (hidden & ~ordinary).any()
    assert np.array_equal(loaded.inputs[~hidden], loaded.clean[~hidden])
    stand_ins = loaded.inputs[hidden]
    assert ((stand_ins == MASK) | (stand_ins >= NUM_SPECIAL)).all()
    keys = derive_keys(setting.seed, epoch, [row.number for row in loaded.rows])
    quotas = draw_quotas(keys, ordinary.sum(axis=1), setting.masking.rate)
    counts = hidden.sum(axis=1)
    if setting.masking.strategy == "words":  # whole ones, so the quota is kept in the mean
        assert (counts <= quotas + 6).all()
    else:
        assert np.array_equal(counts, quotas)


@effort(max_examples=20)
@given(settings, st.data())
def test_a_row_is_the_same_in_any_step_and_after_any_resumption(
    setting: Setting, data: st.DataObject
) -> None:
    """Cut into steps in two ways; and each row loaded alone, from its number, by a new source."""
    with setting.windowed() as source:
        one = load_epoch(setting, source, 3, data.draw(sizes_of_steps))
        other = load_epoch(setting, setting.source(), 3, data.draw(sizes_of_steps))
        assert one.rows == other.rows
        for name in ("inputs", "labels", "segment_ids", "positions"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        place = data.draw(st.integers(0, len(one.rows) - 1))
        position = DataPosition(setting.row_length, 3, one.rows[place].number)
        request = StepRequest(setting.row_length, 1, 1, setting.masking.rate)
        [inputs, labels, _, _] = place_labels(setting.source().load(request, position), 1)
    assert np.array_equal(inputs[0], one.inputs[place])
    assert np.array_equal(labels[0], one.labels[place])


@effort(max_examples=30)
@given(settings)
def test_a_number_that_no_row_has_leads_to_the_next_row(setting: Setting) -> None:
    with setting.windowed() as source:
        planner = source.planner(setting.row_length)
        rows, _ = planner.plan_rows(DataPosition(setting.row_length), 40)
        for row, following in pairwise(rows):
            if row.epoch == following.epoch:
                for number in range(row.number + 1, min(following.number, row.number + 4)):
                    position = DataPosition(setting.row_length, row.epoch, number)
                    assert [*planner.plan_rows(position, 1)[0]] == [following]


def plan_one(source: RowSource, position: DataPosition) -> tuple[list[Row], DataPosition]:
    rows, after = source.planner(position.row_length).plan_rows(position, 1)
    return [*rows], after


@effort(max_examples=6)
@given(settings, st.lists(st.integers(0, 100), min_size=2, max_size=4))
def test_threads_that_share_a_source_do_not_disturb_one_another(
    setting: Setting, numbers: list[int]
) -> None:
    """They ask for few rows of few windows, and so often find another thread's window kept."""
    length, interval = setting.row_length, sys.getswitchinterval()
    places = [DataPosition(length, n % 2, n) for n in numbers]
    with patch.object(rows_module, "WINDOW_SEGMENTS", 4), ThreadPoolExecutor(8) as pool:
        expected = [plan_one(setting.source(), p) for p in places]
        shared = setting.source()
        sys.setswitchinterval(1e-6)
        try:
            found = list(pool.map(lambda p: plan_one(shared, p), places * 60))
        finally:
            sys.setswitchinterval(interval)
    assert found == expected * 60


@effort(max_examples=15)
@given(
    st.lists(st.sampled_from([0, 1, 10**6 - 1, 10**9, 10**12]), min_size=1, max_size=4),
    st.integers(0, 2**40),
)
def test_documents_of_any_length_need_no_memory(lengths: list[int], turn: int) -> None:
    """Windows anywhere in an epoch of up to 4e12 tokens: their segments are in no other window."""
    lengths = [*lengths, 10**12]
    table = SegmentTable(np.array(lengths, dtype=np.int64), 126)
    planner = RowPlanner(table, 128, 2, seed=5, packed=True)
    num_windows = -(-len(table) // rows_module.WINDOW_SEGMENTS)
    seen: set[tuple[int, int]] = set()
    count = 0
    ends = np.cumsum(lengths)
    for window in {turn % num_windows, num_windows - 1, num_windows // 3}:
        number = window * rows_module.WINDOW_SEGMENTS
        planned, _ = planner.plan_rows(DataPosition(128, 0, number), 20)
        segments = [segment for row in planned if row.epoch == 0 for segment in row.segments]
        seen.update(segments)
        count += len(segments)
        for start, length in segments:
            end = int(ends[np.searchsorted(ends, start, side="right")])
            assert 1 <= length <= 126
            assert start + length <= end
            assert length == 126 or start + length == end
    assert len(seen) == count


def test_a_change_of_the_row_length_leaves_the_rest_of_the_epoch_unseen() -> None:
    """The one tail that there is: rows of another length are another epoch, from its beginning."""
    setting = Setting([50] * 40, 16, True, True, MaskingConfig(), 0, 4096)
    source = setting.source()
    position = source.load(StepRequest(16, 5, 5, 0.15), DataPosition(16)).next_position
    assert (position.epoch, position.row) == (0, 5)
    longer = source.load(StepRequest(32, 5, 5, 0.15), position)
    rows, after = source.planner(32).plan_rows(DataPosition(32, 1, 0), 5)
    assert longer.next_position == after == DataPosition(32, 1, 5)
    assert longer.num_tokens == sum(length + 2 for row in rows for _, length in row.segments)
