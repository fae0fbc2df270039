"""Contenders in turns: on a shared machine only ratios of neighbours mean something."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def race(
    contenders: Mapping[str, Callable[[], float]], rounds: int, unit: str
) -> dict[str, list[float]]:
    """What each gives, round by round; all in one round before the next.

    Args:
        contenders: each runs once and says how fast it was.
        unit: of that, to print it.
    """
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            found[name].append(run())
            print(f"round {number + 1}  {name:<36} {found[name][-1]:>14,.2f} {unit}", flush=True)
    return found


def divide(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Ours over theirs, round by round."""
    each = [mine / his for mine, his in zip(ours, theirs, strict=True)]
    return {
        "median": round(statistics.median(each), 3),
        "least": round(min(each), 3),
        "most": round(max(each), 3),
    }
