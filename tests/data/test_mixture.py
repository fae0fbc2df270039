"""Several corpora as one: shares, each source's own order, and rows that any index names."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.data import mixture as mixture_module
from maskwright.data import rows as rows_module
from maskwright.data.config import DataConfig, MaskingConfig, MixtureConfig
from maskwright.data.loader import LoadedStep, RowSource, StepRequest
from maskwright.data.masking import Masker
from maskwright.data.mixture import Mixture, MixturePlanner, count_passes
from maskwright.data.permutation import permute
from maskwright.data.rows import DataPosition, Row, SegmentTable, segments_per_row
from maskwright.distributed.world import ALONE, World
from tests.data.test_loader import masked_rows
from tests.helpers import SyntheticCorpus, count_predictions, special_ids, vocabulary

ROW, EXTRA, SEED = 16, 2, 7


@dataclass(frozen=True)
class Sources:
    """Documents of several sources, and how often an epoch passes over each."""

    lengths: tuple[tuple[int, ...], ...]
    passes: tuple[float, ...]

    @property
    def tables(self) -> list[SegmentTable]:
        return [SegmentTable(np.asarray(lengths), ROW - EXTRA) for lengths in self.lengths]

    @property
    def first_tokens(self) -> list[int]:
        return np.cumsum([0, *map(sum, self.lengths)]).tolist()

    def planner(self, packed: bool = True) -> MixturePlanner:
        return MixturePlanner(self.tables, self.passes, ROW, EXTRA, SEED, packed)

    def source_of(self, row: Row) -> int:
        """The one source of all segments of a row."""
        found = np.searchsorted(self.first_tokens, [s for s, _ in row.segments], side="right") - 1
        assert len(set(found.tolist())) == 1
        return int(found[0])

    def row_source(self, world: World = ALONE) -> RowSource:
        corpus = SyntheticCorpus([n for lengths in self.lengths for n in lengths])
        masker = Masker(MaskingConfig(rate=0.3), vocabulary(corpus.unigram_counts))
        mixture = Mixture(tuple(map(len, self.lengths)), self.passes)
        return RowSource(corpus, DataConfig(ROW), special_ids(), masker, SEED, world, mixture)


documents = st.lists(st.integers(1, 40), min_size=1, max_size=30).map(tuple)
few = settings(max_examples=20)  # of each kind of windows
sources_of_any_kind = st.lists(
    st.tuples(documents, st.floats(0.05, 6)), min_size=1, max_size=4
).map(lambda pairs: Sources(*zip(*pairs, strict=True)))
BOTH = Sources(((9, 30, 4, 17, 22) * 8, (40, 3, 12) * 3), (0.75, 4.5))


@pytest.fixture(autouse=True, params=[32, 4096], ids=["many-windows", "one-window"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (rows_module, mixture_module):
        monkeypatch.setattr(module, "WINDOW_SEGMENTS", request.param)
    return request.param


def plan_windows(planner: MixturePlanner, count: int) -> list[list[Row]]:
    """The rows of the first windows, across epochs."""
    turns = [divmod(turn, planner.num_windows) for turn in range(count)]
    return [[*planner._window(epoch, window)] for epoch, window in turns]


@few
@given(sources_of_any_kind, st.booleans())
def test_after_any_window_each_source_is_less_than_a_segment_off_its_share(
    sources: Sources, packed: bool
) -> None:
    planner = sources.planner(packed)
    drawn, total = Counter[int](), planner.num_windows
    for turn, rows in enumerate(plan_windows(planner, 2 * total + 1), start=1):
        for row in rows:
            drawn[sources.source_of(row)] += len(row.segments)
        for source, count in enumerate(planner.num_segments):
            assert abs(drawn[source] - count * turn / total) < 1
    for count, table, passes in zip(
        planner.num_segments, sources.tables, sources.passes, strict=True
    ):
        assert count == max(1, round(passes * len(table)))


@few
@given(sources_of_any_kind)
def test_within_a_window_rows_of_all_sources_lie_evenly(sources: Sources) -> None:
    for rows in plan_windows(sources.planner(), 2):
        whole = Counter(map(sources.source_of, rows))
        seen = Counter[int]()
        for place, row in enumerate(rows, start=1):
            seen[sources.source_of(row)] += 1
            for source, count in whole.items():
                assert abs(seen[source] - count * place / len(rows)) < len(whole)


@given(sources_of_any_kind)
@few
def test_each_source_comes_in_the_order_that_it_has_alone(sources: Sources) -> None:
    planner = sources.planner()
    windows = plan_windows(planner, 2 * planner.num_windows)
    for source, table in enumerate(sources.tables):
        number = 0
        for rows in windows:
            own = [row for row in rows if sources.source_of(row) == source]
            found = [start for row in own for start, _ in row.segments]
            epochs, places = np.divmod(number + np.arange(len(found)), len(table))
            # Pass by pass the same segments, in whatever rows.
            for epoch in np.unique(epochs):
                is_now = epochs == epoch
                alone = permute(places[is_now], len(table), SEED, int(epoch))
                expected = np.sort(table.locate(alone)[0] + sources.first_tokens[source])
                assert np.sort(np.asarray(found)[is_now]).tolist() == expected.tolist()
            number += len(found)


def test_a_row_holds_no_text_twice_however_often_a_source_is_repeated() -> None:
    sources = Sources(((3, 5, 2), (11,) * 50), (40.0, 1.0))
    for row in plan_windows(sources.planner(), 1)[0]:
        assert len(set(row.segments)) == len(row.segments) <= segments_per_row(ROW)
        assert sum(length + EXTRA for _, length in row.segments) <= ROW


def test_once_each_is_every_token_once() -> None:
    sources = Sources(BOTH.lengths, (1.0, 1.0))
    planner = sources.planner()
    rows = [row for rows in plan_windows(planner, planner.num_windows) for row in rows]
    seen = [t for row in rows for start, n in row.segments for t in range(start, start + n)]
    assert sorted(seen) == list(range(sources.first_tokens[-1]))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), sources_of_any_kind)
@few
def test_rows_do_not_depend_on_how_they_are_asked_for(sizes: list[int], sources: Sources) -> None:
    together, end = sources.planner().plan_rows(DataPosition(ROW), sum(sizes))
    pieces: list[Row] = []
    position = DataPosition(ROW)
    for size in sizes:
        # A planner of its own for every request, as after a resumption.
        more, position = sources.planner().plan_rows(position, size)
        pieces += more
    assert pieces == [*together]
    assert position == end
    assert len({(row.epoch, row.number) for row in pieces}) == len(pieces)


def load(num_rows: int, micro: int, world: World, start: DataPosition) -> LoadedStep:
    return BOTH.row_source(world).load(StepRequest(ROW, num_rows, micro, 0.3), start)


@given(
    num_rows=st.integers(1, 40),
    size=st.integers(1, 5),
    micro=st.integers(1, 6),
    epoch=st.integers(0, 3),
)
@few
def test_a_step_is_the_same_in_any_world_also_after_steps_in_another(
    num_rows: int, size: int, micro: int, epoch: int
) -> None:
    start = load(num_rows, micro, World(1, 3), DataPosition(ROW, epoch, 0)).next_position
    whole = load(num_rows, num_rows, World(), start)
    parts = [load(num_rows, micro, World(rank, size), start) for rank in range(size)]
    assert set.union(*map(masked_rows, parts)) == masked_rows(whole)
    assert sum(map(count_predictions, parts)) == count_predictions(whole)
    assert {part.next_position for part in parts} == {whole.next_position}


def test_a_change_of_the_row_length_keeps_the_shares() -> None:
    """Segments are longer or shorter then, and sources give other numbers of them."""
    lengths = ((200,) * 40, (7,) * 500)
    corpus = SyntheticCorpus([n for part in lengths for n in part])
    passes = count_passes(MixtureConfig(weights=("a=3", "b=1")), {"a": 8000, "b": 3500})
    mixture = Mixture((40, 500), tuple(passes.values()))
    masker = Masker(MaskingConfig(), vocabulary())
    source = RowSource(corpus, DataConfig(64), special_ids(), masker, 0, ALONE, mixture)
    for length in (16, 64):
        planner = source.planner(length)
        assert isinstance(planner, MixturePlanner)
        spans = np.concatenate([planner._window(0, w).spans for w in range(planner.num_windows)])
        from_first = spans[spans[:, 0] < 8000, 1].sum() / spans[:, 1].sum()
        assert from_first == pytest.approx(0.75, abs=0.01)


SIZES = {"wiki": 8000, "books": 1000, "code": 1000}


def shares_of(passes: dict[str, float], sizes: dict[str, int]) -> list[float]:
    tokens = [passes[name] * size for name, size in sizes.items()]
    return [n / sum(tokens) for n in tokens]


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        (MixtureConfig(), [0.8, 0.1, 0.1]),
        (MixtureConfig(weights=("books=1", "wiki=2", "code=1")), [0.5, 0.25, 0.25]),
        (MixtureConfig(temperature=1), [0.8, 0.1, 0.1]),
        (MixtureConfig(temperature=1e9), [1 / 3] * 3),
        (MixtureConfig(temperature=3), [0.5, 0.25, 0.25]),
    ],
)
def test_shares(config: MixtureConfig, shares: Sequence[float]) -> None:
    passes = count_passes(config, SIZES)
    assert shares_of(passes, SIZES) == pytest.approx(shares)
    # An epoch of the mixture is as long as all sources together.
    assert sum(passes[name] * size for name, size in SIZES.items()) == pytest.approx(10_000)


def test_epochs_count_passes() -> None:
    passes = count_passes(MixtureConfig(epochs=("books=2.5",)), SIZES)
    assert passes == {"wiki": 1.0, "books": 2.5, "code": 1.0}
