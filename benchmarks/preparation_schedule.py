"""Hours that preparing a terabyte takes on 1, 10 and 100 nodes: the schedule, simulated.

The stages are those of the program. Seconds of tasks are drawn from those of the largest text of
the newest `preparation-scale` on one core, times the ratio of the megabytes of a task, and in the
search for duplicates times that of the passes over all files. Tasks are dealt as the engines deal
them: rank r of n has the tasks r, r + n, …, and each of its processes takes the next one when it is
free. Not simulated: a file system that does not keep up. What it has to carry is counted, with each
node reading once the files that all tasks of a stage share.
"""

import argparse
import heapq
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Result, find_result, write_result
from maskwright.config import from_mapping
from maskwright.corpus.blocks import Block
from maskwright.preparation import work as stored
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.sorted_runs import CHUNK
from maskwright.preparation.stages import FINISH, list_stages

Seconds = NDArray[np.float64]
TERABYTE = 1e6  # megabytes
NODES, CORES = (1, 10, 100), 32
DRAWS = 5  # schedules of each stage, of which the mean counts
STRAGGLERS, SLOWER = 0.02, 3.0  # the share of slow tasks, and times as long they take
FAILURES = 0.01  # the share of tasks that fail halfway and run again
START = 5.0  # seconds until Slurm starts the jobs of the next stage
ROUNDS = 8  # of joining near duplicates, which Slurm is given ahead
SELECT = {"everything": {"near_duplicates": 0.8}, "nothing": {}}
# Suffixes of the files that a stage reads; all tasks read each of those in SHARED.
READS = {
    stored.EXACT: [stored.KEYS],
    stored.NEAR: [stored.BANDS, stored.SIGNATURES],
    stored.CONNECT: ["pairs"],
    stored.VOCABULARY: [stored.SAMPLED, stored.PIECES, "drops"],
    stored.ENCODE: [stored.TEXTS, "drops"],
    FINISH: ["json", "counts"],
}
SHARED = {stored.KEYS, stored.BANDS, "pairs", "drops"}


def disturb(seconds: Seconds, draw: np.random.Generator) -> Seconds:
    """Make some tasks slow, and let some fail halfway and run again."""
    slow = np.where(draw.random(len(seconds)) < STRAGGLERS, SLOWER, 1.0)
    return seconds * slow * np.where(draw.random(len(seconds)) < FAILURES, 1.5, 1.0)


def run_stage(seconds: Seconds, nodes: int, cores: int, start: float = 0.0) -> float:
    """Return the seconds until all tasks are done, by processes that take `start` to begin."""
    ranks, ends = min(nodes, len(seconds)), list[float]()
    for rank in range(ranks):
        free = [start] * cores
        for task in seconds[rank::ranks].tolist():
            ends.append(free[0] + task)
            heapq.heapreplace(free, ends[-1])
    return max(ends)


def find_growth(runs: list[Result], documents: int, plan: stored.Plan) -> dict[str, float]:
    """Return how many times as long the tasks of a stage take together; else as the text."""
    larger, blocks = TERABYTE / runs[-1]["megabytes"], [run["blocks"] for run in runs]
    passes = 1 + 2 * math.ceil(documents * larger / plan.num_ranges / CHUNK)  # measured: 3
    finishes = [run["stages"][-1]["seconds"] for run in runs]
    slope, fixed = np.polyfit(blocks, finishes, 1)
    return {
        **dict.fromkeys((stored.EXACT, stored.NEAR), larger * passes / 3),
        stored.VOCABULARY: 1.0,  # its text is bounded
        FINISH: (fixed + slope * len(plan.blocks)) / finishes[-1],
    }


def find_limit(num_tasks: int, start: float, ideal: float, seconds: float) -> str:
    """Return what a stage mostly waits for."""
    if max(start, ideal) >= 0.6 * seconds:
        return "cores" if ideal > start else "its start"
    return "one task" if num_tasks == 1 else "its longest tasks"


def simulate(runs: list[Result], documents: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield what each stage takes, given runs on one core; the last has most text."""
    run, draw, written = runs[-1], np.random.default_rng(seed), Counter[str]()
    config = from_mapping(PrepareConfig, {"select": SELECT[run["step"]]})
    blocks = [Block(())] * math.ceil(TERABYTE / config.block_megabytes)
    work, larger = stored.Work(Path()), TERABYTE / run["megabytes"]
    work.plan = stored.Plan("", [], blocks, 0, {}, config, 0, 0.0, "")
    growth = find_growth(runs, documents, work.plan)
    measured = {stage["name"]: stage for stage in run["stages"]}
    for stage in list_stages(work, 1):
        found, kind = measured[stage.name], stage.name.partition("-")[0]
        rounds = ROUNDS if kind == stored.CONNECT else 1  # as if all did as much as the first
        more, first = stage.num_tasks / found["tasks"], found["seconds_of_tasks"][0]
        usual = np.array(found["seconds_of_tasks"][1:] or [first])
        loading = max(0.0, first - np.median(usual))  # of models, by the first task of a process
        start = START + run["seconds_to_start_a_process"] + loading
        tasks = draw.choice(usual, (DRAWS, stage.num_tasks)) * growth.get(kind, larger) / more
        drawn = [disturb(one, draw) for one in tasks]
        ends = [[run_stage(one, nodes, CORES, start) for nodes in NODES] for one in drawn]
        seconds = (np.mean(ends, axis=0) * rounds).tolist()
        ideal = np.sum(drawn) / DRAWS * rounds
        bounded = {stored.PIECES: 1.0, stored.SAMPLED: 1.0, "json": more, "counts": more}
        sizes = {s: n * bounded.get(s, larger) / 1e9 for s, n in found["bytes"].items()}
        read = sum(written[s] * (NODES[-1] if s in SHARED else 1) for s in READS.get(kind, ()))
        read += TERABYTE / 1e3 * (kind == stored.READ)
        written.update(sizes)
        yield {
            "stage": kind,
            "rounds": rounds,
            "tasks": stage.num_tasks,
            "files": round(found["files"] * more) * rounds,
            "core_hours": round(ideal / 3600, 2),
            "seconds": [round(one, 1) for one in seconds],
            "gigabytes_read": round(read * rounds, 1),
            "gigabytes_written": round(sum(sizes.values()) * rounds, 1),
            "gigabytes_a_second": round((read + sum(sizes.values())) * rounds / seconds[-1], 2),
            "limit": find_limit(
                stage.num_tasks, start * rounds, ideal / NODES[-1] / CORES, seconds[-1]
            ),
        }


def main(arguments: argparse.Namespace) -> None:
    measured = find_result("preparation-scale") or sys.exit("run preparation-scale first")
    result: dict[str, Any] = {"measured": measured["file"], "nodes": NODES, "totals": []}
    for step in SELECT:
        runs = [one for one in measured["runs"] if (one["step"], one["cores"]) == (step, 1)]
        result[step] = list(simulate(runs, measured["documents"][-1]))
        columns = zip(*(stage["seconds"] for stage in result[step]), strict=True)
        totals = list(map(sum, columns))
        for nodes, seconds in zip(NODES, totals, strict=True):
            figures = {"hours": seconds / 3600, "times_one_node": totals[0] / seconds}
            result["totals"].append({"step": step, "nodes": nodes, **figures})
    print(json.dumps(result, indent=1))
    write_result("preparation-schedule", result)
