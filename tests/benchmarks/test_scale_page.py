"""The estimate for a cluster is what the measured steps say, and the driver bounds it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import BEGIN, END
from benchmarks.preparation_scale import change_words
from benchmarks.preparation_step import SELECTION, SEQUENTIAL, STEPS
from benchmarks.scale_page import (
    NOTHING,
    PAGE,
    Costs,
    count_useful_cores,
    estimate_cluster,
    estimate_machine,
    find_costs,
    write_section,
)

COSTS = Costs(
    hash=0.001, read=0.01, clean=0.03, hand_out=0.01,
    select=0.2, search=0.004, encode=0.4, train=36.0,
)  # fmt: skip
HOUR_MEGABYTES = 3600.0


def seconds(step: str, size: float, cores: int) -> dict[str, Any]:
    """A step as `preparation_scale` writes it down, if it took what COSTS say."""
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


def text(size: float) -> dict[str, Any]:
    steps = {
        step: {str(n): seconds(step, size, n) for n in ((1,) if step in SEQUENTIAL else (1, 2))}
        for step in STEPS
    }
    return {"megabytes": size, "documents": 1000, "steps": steps}


def test_costs_are_found_again() -> None:
    assert find_costs(text(600.0)) == pytest.approx(COSTS)


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


def test_the_section_is_written_from_the_newest_result(tmp_path: Path) -> None:
    assert write_section(tmp_path) == NOTHING
    environment = {"cpu": "Some CPU (Family 1)", "cpu_count": 2}
    result = {"texts": [text(150.0), text(600.0)], "environment": environment}
    (tmp_path / "2026-01-01_x_preparation-scale.json").write_text(json.dumps(result))
    section = write_section(tmp_path)
    assert "| 600 MB | 2 |" in section
    assert len(re.findall(r"\([+-]0%\)", section)) == 4
    assert "| 100 | " in section
    assert "More than 10 cores are of no use" in section
    for name in SELECTION:
        assert f"| selection: {name} |" in section


def test_the_page_has_a_place_for_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert page.partition(BEGIN)[2].partition(END)[0] == write_section()


def test_changed_copies_share_few_runs_of_words() -> None:
    original = " ".join(f"w{n}" for n in range(400))
    assert change_words(original, 0) == original

    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[n : n + 5]) for n in range(len(words) - 4)}

    copies = [runs(change_words(original, copy).split()) for copy in range(4)]
    for number, one in enumerate(copies):
        for other in copies[:number]:
            assert len(one & other) / len(one | other) < 0.4
    assert set(change_words(original, 3).split()) <= set(original.split())
