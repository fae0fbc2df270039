"""A simulated schedule takes what its tasks, their order and their accidents make it take."""

from typing import Any

import numpy as np
import pytest

from benchmarks import preparation_schedule
from benchmarks.preparation_schedule import NODES, disturb, run_stage, simulate

SECONDS = {"read": 5.0, "exact": 0.01, "near": 0.01, "connect-1": 0.01, "vocabulary": 20.0,
           "encode": 2.0, "finish": 0.1}  # fmt: skip


def measure_run(step: str, megabytes: float, blocks: int) -> dict[str, Any]:
    """What `preparation-scale` measures on one core, if every megabyte takes as long."""
    stages: list[dict[str, Any]] = []
    for name, seconds in SECONDS.items():
        tasks = {"read": blocks, "encode": blocks, "near": 84, "exact": 4, "connect-1": 4}.get(
            name, 1
        )
        if step == "nothing" and name in ("near", "connect-1"):
            continue
        grown = seconds * {"read": megabytes / blocks / 9, "encode": megabytes / blocks / 9}.get(
            name, 1
        )
        stages.append({
            "stage": name, "tasks": tasks, "seconds_of_tasks": [grown] * tasks, "files": tasks,
            "bytes": {"keys": 1_000_000, "texts.zst": 10_000_000} if name == "read" else {},
        })  # fmt: skip
    return {
        "step": step, "megabytes": megabytes, "cores": 1, "blocks": blocks, "stages": stages,
        "megabytes_per_second": 1.1, "seconds_to_start_a_process": 1.0, "peak_megabytes": 507,
        "largest_megabytes": 480, "files_a_block": 19.4,
    }  # fmt: skip


def measure_runs() -> list[dict[str, Any]]:
    sizes = ((20.0, 10), (600.0, 64))
    return [measure_run(step, *size) for step in ("nothing", "everything") for size in sizes]


@pytest.mark.parametrize(("nodes", "cores"), [(1, 1), (1, 32), (4, 8), (20, 32)])
def test_equal_tasks_take_work_over_cores(nodes: int, cores: int) -> None:
    assert run_stage(np.full(640, 2.0), nodes, cores) == 2 * 640 / nodes / cores


def test_the_start_comes_once_and_unneeded_nodes_do_nothing() -> None:
    assert run_stage(np.full(6, 2.0), 3, 2, start=5.0) == 7
    assert run_stage(np.full(6, 2.0), 100, 32, start=5.0) == 7


def test_a_straggler_lengthens_by_what_no_other_process_can_do() -> None:
    tasks = np.full(64, 1.0)
    tasks[-1] = 3.0
    assert run_stage(tasks, 1, 32) == 4
    tasks[[0, -1]] = 3.0, 1.0  # the others take the tasks that wait
    assert run_stage(tasks, 1, 32) == 3


def test_tasks_are_dealt_before_anybody_knows_how_long_they_take() -> None:
    tasks = np.tile([3.0, 1.0], 32)  # the first of two nodes gets all that are long
    assert run_stage(tasks, 2, 8) == 3 * 32 / 8
    assert run_stage(tasks, 1, 16) < run_stage(tasks, 2, 8)


def test_stragglers_and_failures_cost_their_share() -> None:
    ones = np.ones(200_000)
    found = disturb(ones, np.random.default_rng(0))
    assert set(found) == {1.0, 1.5, 3.0, 4.5}
    assert found.mean() == pytest.approx(1.04 * 1.005, rel=0.01)
    assert (found == disturb(ones, np.random.default_rng(0))).all()


def test_a_terabyte_is_as_much_work_as_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation_schedule, "TERABYTE", 60_000)
    monkeypatch.setattr(preparation_schedule, "STRAGGLERS", 0.0)
    monkeypatch.setattr(preparation_schedule, "FAILURES", 0.0)
    runs = [measure_run("everything", 20.0, 10), measure_run("everything", 600.0, 64)]
    stages = {stage["stage"]: stage for stage in simulate(runs)}
    work = 5.0 / 9 * 60_000 / 32
    assert work + 6 <= stages["read"]["seconds"][0] <= 1.1 * work + 6
    assert stages["read"]["gigabytes_written"] == pytest.approx(11e-3 * 100)
    assert stages["exact"]["gigabytes_read"] == pytest.approx(1e-3 * 100 * NODES[-1])
    assert stages["vocabulary"]["seconds"] == [26.0] * len(NODES)
    for stage in stages.values():
        assert stage["seconds"] == sorted(stage["seconds"], reverse=True)
