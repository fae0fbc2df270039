"""Hours that preparing a terabyte takes on 1, 10 and 100 nodes: the schedule, simulated.

Tasks take what those of the largest text of the newest `preparation-scale` took on one core, as
many times as they have more megabytes; in the search for duplicates, as many times as they pass
over more files. The engines deal them: rank r of n has the tasks r, r + n, …, and its processes
take the next one when they are free. It is assumed that the file system keeps up; what it carries
is counted as if each of 100 nodes read once what all tasks of a stage read.
"""

import argparse
import heapq
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
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.sorted_runs import CHUNK
from maskwright.preparation.stages import list_stages
from maskwright.preparation.work import Plan, Work

Seconds = NDArray[np.float64]
TERABYTE = 1e6  # megabytes
NODES, CORES, DRAWS = (1, 10, 100), 32, 5  # the mean of the draws counts
STRAGGLERS, SLOWER = 0.02, 3.0  # the share of slow tasks, and times as long they take
FAILURES = 0.01  # the share of tasks that fail halfway and run again
START = 5.0  # seconds until Slurm starts the jobs of the next stage
ROUNDS = 8  # of joining near duplicates, which Slurm is given ahead; all count as the first
SELECT = {"everything": {"near_duplicates": 0.8}, "nothing": {}}
READS = {
    "exact": "keys", "near": "bands signatures", "connect": "pairs", "encode": "drops texts.zst",
    "vocabulary": "drops sampled pieces.zst", "finish": "json counts",
}  # fmt: skip
SHARED = {"keys", "bands", "pairs", "drops"}  # all tasks read each file


def disturb(seconds: Seconds, draw: np.random.Generator) -> Seconds:
    """Make some tasks slow, and let some fail halfway and run again."""
    slow = np.where(draw.random(len(seconds)) < STRAGGLERS, SLOWER, 1.0)
    return seconds * slow * np.where(draw.random(len(seconds)) < FAILURES, 1.5, 1.0)


def run_stage(seconds: Seconds, nodes: int, cores: int, start: float = 0.0) -> float:
    """Return the seconds until all tasks are done, by processes that take `start` to begin."""
    ends = [start]
    for rank in range(nodes):
        free = [start] * cores
        for task in seconds[rank::nodes].tolist():
            ends.append(free[0] + task)
            heapq.heapreplace(free, ends[-1])
    return max(ends)


def simulate(runs: list[Result], documents: int) -> Iterator[dict[str, Any]]:
    """Yield what each stage takes, given runs on one core; the last has most text."""
    run, draw, written = runs[-1], np.random.default_rng(0), Counter[str]()
    config = from_mapping(PrepareConfig, {"select": SELECT[run["step"]]})
    work, larger = Work(Path()), TERABYTE / run["megabytes"]
    blocks = [Block(())] * round(TERABYTE / config.block_megabytes)
    work.plan = Plan([], blocks, 0, {}, config, 0, 0.0, "")
    passes = 1 + 2 * np.ceil(documents * larger / work.plan.num_ranges / CHUNK)  # 3 when measured
    finishes = [one["stages"][-1]["seconds"] for one in runs]
    slope, fixed = np.polyfit([one["blocks"] for one in runs], finishes, 1)
    longer = dict.fromkeys(("exact", "near"), len(blocks) / run["blocks"] * passes / 3)
    longer |= {"vocabulary": 1.0, "finish": (fixed + slope * len(blocks)) / finishes[-1]}
    measured = {stage["name"]: stage for stage in run["stages"]}
    for stage in list_stages(work, 1):
        found, kind = measured[stage.name], stage.name.partition("-")[0]
        more, rounds = stage.num_tasks / found["tasks"], ROUNDS if kind == "connect" else 1
        first, *others = found["seconds_of_tasks"]  # the first one loads what all need
        usual = np.array(others or [first])
        start = START + run["seconds_to_start_a_process"] + max(0.0, first - np.median(usual))
        tasks = draw.choice(usual, (DRAWS, stage.num_tasks)) * longer.get(kind, larger / more)
        drawn = [disturb(one, draw) for one in tasks]
        ends = [[run_stage(one, nodes, CORES, start) for nodes in NODES] for one in drawn]
        seconds = np.mean(ends, axis=0) * rounds
        ideal, begun = np.sum(drawn) / DRAWS / NODES[-1] / CORES * rounds, start * rounds
        rest = float(seconds[-1]) - ideal - begun
        waits = {"cores": ideal, "its start": begun, "its longest task": rest}
        reads = READS.get(kind, "").split()
        read = sum(written[s] * (NODES[-1] if s in SHARED else 1) for s in reads)
        few = {"pieces.zst": 1, "sampled": 1, "json": more, "counts": more}
        sizes = Counter({s: n * few.get(s, larger) / 1e9 for s, n in found["bytes"].items()})
        written += sizes
        yield {
            "stage": kind,
            "tasks": stage.num_tasks * rounds,
            "files": round(found["files"] * more) * rounds,
            "seconds": seconds.round(1).tolist(),
            "gigabytes_read": read + TERABYTE / 1e3 * (kind == "read"),
            "gigabytes_written": sum(sizes.values()) * rounds,
            "limit": max(waits, key=waits.__getitem__),
        }


def main(arguments: argparse.Namespace) -> None:
    measured = find_result("preparation-scale") or sys.exit("run preparation-scale first")
    result: dict[str, Any] = {"measured": measured["file"], "totals": []}
    for step in SELECT:
        runs = [one for one in measured["runs"] if (one["step"], one["cores"]) == (step, 1)]
        result[step] = list(simulate(runs, measured["documents"][-1]))
        print(*result[step], sep="\n")
        seconds = np.sum([stage["seconds"] for stage in result[step]], axis=0)
        for nodes, total in zip(NODES, seconds.tolist(), strict=True):
            total = {"hours": total / 3600, "times_one_node": seconds[0] / total}
            result["totals"].append({"step": step, "nodes": nodes, **total})
    print(*result["totals"], sep="\n")
    write_result("preparation-schedule", result)
