"""The estimate for a cluster is what the measured steps say, and the driver bounds it."""

from typing import Any

import pytest

from benchmarks.cluster_estimate import (
    Costs,
    count_useful_cores,
    estimate_cluster,
    estimate_machine,
    find_costs,
)
from benchmarks.preparation_step import SEQUENTIAL, STEPS

COSTS = Costs(
    hash=0.001, read=0.01, clean=0.03, hand_out=0.01,
    select=0.2, search=0.004, encode=0.4, train=36.0,
)  # fmt: skip
HOUR_MEGABYTES = 3600.0


def seconds(step: str, size: float, cores: int) -> dict[str, Any]:
    """A step as `preparation_scale` writes it, if it took what COSTS say."""
    alone = {
        "hashing": COSTS.hash,
        "reading": COSTS.read,
        "cleaning": COSTS.clean,
        "handing out": COSTS.clean + COSTS.hand_out,
        "tokenizer": COSTS.clean + COSTS.train / size,
        "encoding": COSTS.clean + COSTS.encode,
        "everything": estimate_machine(COSTS, size, cores) / size,
    }
    each = alone.get(step, COSTS.read + COSTS.select + COSTS.search)
    apart = {"handing out": {"add": size * COSTS.hand_out}}
    return {
        "seconds": size * each,
        "megabytes_per_second": 1 / each,
        "seconds_apart": apart.get(step, {"find_near_duplicates": size * COSTS.search}),
        "peak_megabytes": 500,
    }


def measured_text(size: float) -> dict[str, Any]:
    steps = {
        step: {str(n): seconds(step, size, n) for n in ((1,) if step in SEQUENTIAL else (1, 2))}
        for step in STEPS
    }
    return {"megabytes": size, "documents": 1000, "steps": steps}


def test_costs_are_found_again() -> None:
    assert find_costs(measured_text(600.0)) == pytest.approx(COSTS)


def test_one_core_does_everything_one_after_the_other() -> None:
    each = sum(COSTS[:7]) - COSTS.hand_out + COSTS.clean  # which two of the three passes do
    assert estimate_machine(COSTS, 100.0, 1) == pytest.approx(100 * each + COSTS.train)
    halved = 100 * (COSTS.read + COSTS.select + COSTS.clean + COSTS.encode) / 2
    two = estimate_machine(COSTS, 100.0, 2)
    assert two == pytest.approx(100 * each + COSTS.train - halved)


def test_more_nodes_help_until_the_driver_is_the_slower() -> None:
    hours = [estimate_cluster(COSTS, HOUR_MEGABYTES, cores).hours for cores in (1, 5, 10, 20, 40)]
    assert hours[:3] == sorted(set(hours[:3]), reverse=True)
    assert count_useful_cores(COSTS) == 10
    assert hours[2:] == pytest.approx([hours[2]] * 3)
    last = estimate_cluster(COSTS, HOUR_MEGABYTES, 1000)
    assert last.hours == pytest.approx(last.driver)
