"""Draws are uniform, and nothing that one is for says anything about another.

A statistic fails at a p-value below 1e-7; here are some 5,500 of them, so that with other seeds
good draws would fail one time in 2,000; with these they do not. Each is shown to refuse bad draws.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest

from maskwright.data import counter_rng
from maskwright.data.counter_rng import Bits, Purpose, derive_keys, draw_bits, to_unit
from tests.data.randomness import p_of_cells, p_of_z

PASSES, REFUSED = 1e-7, 1e-12
good_mix = counter_rng.mix
ROWS, POSITIONS = 300, np.arange(128)


def draw(
    seed: int = 3,
    epoch: int = 2,
    row: int = 0,
    position: int = 0,
    purpose: Purpose = Purpose.MASK_CHOICE,
) -> Bits:
    """Draws of 300 rows and 128 positions as masking makes them, from these values on."""
    keys = derive_keys(seed, epoch, row + np.arange(ROWS))
    return draw_bits(keys, purpose, position + POSITIONS)


def draw_for_rows(purpose: Purpose, rows: int = ROWS * len(POSITIONS)) -> Bits:
    """One draw a row, as quotas make them."""
    return derive_keys(derive_keys(3, 2, np.arange(rows)).view(np.int64), purpose)


def p_values_of_one(bits: Bits) -> Iterator[float]:
    """Shares of 512 equal parts of [0, 1), and of ones in each of the 64 bits."""
    parts = np.bincount((to_unit(bits) * 512).astype(int).ravel(), minlength=512)
    yield p_of_cells(parts, np.full(512, bits.size / 512))
    yield from p_values_of_bits(bits)


def p_values_of_bits(bits: Bits) -> Iterator[float]:
    for place in range(64):
        ones = int(((bits >> np.uint64(place)) & np.uint64(1)).sum())
        yield p_of_z((ones - bits.size / 2) / (bits.size / 4) ** 0.5)


def p_values_of_two(first: Bits, second: Bits) -> Iterator[float]:
    """Correlation, a table of 16 times 16 cells, and which bits differ."""
    a, b = to_unit(first).ravel(), to_unit(second).ravel()
    yield p_of_z(float(((a - 0.5) * (b - 0.5)).sum()) * 12 / len(a) ** 0.5)
    table = np.bincount((a * 16).astype(int) * 16 + (b * 16).astype(int), minlength=256)
    yield p_of_cells(table, np.full(256, len(a) / 256))
    yield from p_values_of_bits(first ^ second)


CHANGES: dict[str, Callable[[], Bits]] = {
    "next seed": lambda: draw(seed=4),
    "far seed": lambda: draw(seed=3 + 2**62),
    "next epoch": lambda: draw(epoch=3),
    "seed and epoch exchanged": lambda: draw(seed=2, epoch=3),
    "next row": lambda: draw(row=1),
    "next window": lambda: draw(row=4096),
    "far row": lambda: draw(row=2**40),
    "next position": lambda: draw(position=1),
    "next but one position": lambda: draw(position=2),
    "row for position": lambda: draw(row=1, position=-1),
}


@pytest.mark.parametrize("purpose", Purpose)
def test_draws_are_uniform(purpose: Purpose) -> None:
    assert min(p_values_of_one(draw(purpose=purpose))) > PASSES
    assert min(p_values_of_one(draw_for_rows(purpose))) > PASSES


@pytest.mark.parametrize("change", CHANGES)
def test_draws_for_another_place_are_independent(change: str) -> None:
    assert min(p_values_of_two(draw(), CHANGES[change]())) > PASSES


@pytest.mark.parametrize(("one", "other"), list(combinations(Purpose, 2)))
def test_draws_for_another_purpose_are_independent(one: Purpose, other: Purpose) -> None:
    assert min(p_values_of_two(draw(purpose=one), draw(purpose=other))) > PASSES
    assert min(p_values_of_two(draw_for_rows(one), draw_for_rows(other))) > PASSES


def test_the_draw_of_a_row_says_nothing_of_those_of_its_positions() -> None:
    for_rows = draw_for_rows(Purpose.MASK_COUNT, ROWS)[:, None]
    for purpose in (Purpose.MASK_COUNT, Purpose.MASK_CHOICE, Purpose.CORRUPTION):
        spread = np.broadcast_to(for_rows, (ROWS, len(POSITIONS)))
        a, b = to_unit(spread) - 0.5, to_unit(draw(purpose=purpose)) - 0.5
        assert p_of_z(float((a * b).sum() / ((a**2).sum() / 12) ** 0.5)) > PASSES


def test_no_draw_comes_twice() -> None:
    """Of 300,000 draws of 64 bits two are equal with a probability of 2e-9."""
    everything = [draw(purpose=purpose) for purpose in Purpose]
    everything += [draw_for_rows(purpose, 1000) for purpose in Purpose]
    everything += [derive_keys(3, 2, Purpose.ORDER, np.arange(16))]
    values = np.concatenate([bits.ravel() for bits in everything])
    assert len(np.unique(values)) == len(values)


def half_mix(values: Bits) -> Bits:
    """A multiplication alone: the low bits depend on nothing but low bits."""
    return values * np.uint64(0xBF58476D1CE4E5B9)


def shifted_mix(values: Bits) -> Bits:
    """The lowest bit is always 1."""
    return good_mix(values) | np.uint64(1)


@pytest.mark.parametrize("bad", [half_mix, shifted_mix])
def test_bad_draws_are_not_uniform(
    bad: Callable[[Bits], Bits], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_rng, "mix", bad)
    assert min(p_values_of_one(draw())) < REFUSED


@pytest.mark.parametrize("change", ["next seed", "next epoch", "next row", "next position"])
def test_bad_draws_are_not_independent(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_rng, "mix", half_mix)
    assert min(p_values_of_two(draw(), CHANGES[change]())) < REFUSED


def test_draws_of_a_forgotten_purpose_are_not_independent() -> None:
    assert min(p_values_of_two(draw(), draw())) < REFUSED
    assert min(p_values_of_two(draw(), ~draw())) < REFUSED
