"""Simulate the hours for preparing a terabyte on 1, 10 and 100 nodes.

Task times are those of the largest text of the newest `preparation-scale` on one core, scaled by
the megabytes of the block; for tasks that read files of all blocks, by the size of these files.
Tasks are distributed as the engines do: rank r of n has the tasks r, r + n, …, and a free process
takes the next one. The file system is assumed not to be the limit; its traffic is computed as if
each of 100 nodes read the shared files of a stage once.
"""

import argparse
import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Result, find_result, write_result
from benchmarks.preparation_scale import SELECTION, WHOLE
from maskwright.config import from_mapping
from maskwright.corpus.blocks import cut_into_blocks
from maskwright.corpus.documents import Source, Span
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.stages import list_stages
from maskwright.preparation.work import Plan, Work

Seconds = NDArray[np.float64]
TERABYTE, FILE = 1_000_000, 4  # megabytes of all text, in files of so many
NODES, CORES, DRAWS = (1, 10, 100), 32, 5  # the mean of the draws counts
STRAGGLERS, SLOWER = 0.02, 3.0  # the share of slow tasks, and times as long they take
FAILURES = 0.01  # the share of tasks that fail halfway and run again
START = 5.0  # seconds until Slurm starts the jobs of the next stage
READS = {
    "read": "text", "exact": "keys", "near": "bands signatures", "connect": "pairs",
    "vocabulary": "drops sampled pieces.zst", "encode": "drops texts.zst", "finish": "json counts",
}  # fmt: skip
SHARED = {"keys", "bands", "pairs", "drops"}  # all tasks read each file


def disturb(seconds: Seconds, draw: np.random.Generator) -> Seconds:
    """Make some tasks slow, and let some fail halfway and run again."""
    slow = np.where(draw.random(seconds.shape) < STRAGGLERS, SLOWER, 1.0)
    return seconds * slow * np.where(draw.random(seconds.shape) < FAILURES, 1.5, 1.0)


def run_stage(seconds: Seconds, nodes: int, cores: int, start: float = 0.0) -> float:
    """Return the seconds until all tasks are done, by processes that take `start` to begin."""
    ends = [start]
    for rank in range(nodes):
        free = [start] * cores
        for task in seconds[rank::nodes].tolist():
            ends.append(free[0] + task)
            heapq.heapreplace(free, ends[-1])
    return max(ends)


def simulate(runs: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield what each stage takes, given runs on one core; the last has most text."""
    run, draw, written = runs[-1], np.random.default_rng(0), Counter(text=TERABYTE // 1000)
    config = from_mapping(PrepareConfig, {"select": SELECTION.get(run["step"], {})})
    file = Source("", "", "plain", "", Path(__file__), span=Span(0, FILE * 1_000_000))
    block_bytes, larger = config.block_megabytes * 1_000_000, TERABYTE / run["megabytes"]
    blocks = cut_into_blocks([file] * (TERABYTE // FILE), config.corpus, block_bytes, print)
    work = Work(Path())
    work.plan = Plan([], blocks, 0, {}, config, seed=0, sample_share=0.0, directory="")
    measured = [{stage["stage"]: stage for stage in one["stages"]} for one in runs]
    sizes = np.array([FILE * len(block.sources) for block in blocks])
    longer: dict[str, Any] = {"vocabulary": 1.0}  # its text is bounded
    longer["read"] = longer["encode"] = sizes * run["blocks"] / run["megabytes"]
    for kind in {"exact", "near", "finish"} & measured[-1].keys():
        usual = [np.median(one[kind]["seconds_of_tasks"]) for one in measured]
        line = np.polyfit([one["blocks"] for one in runs], usual, 1)
        longer[kind] = max(1.0, float(np.polyval(line, len(blocks)) / usual[-1]))
    for stage in list_stages(work, ahead=True):
        kind, num_tasks, most = stage.name, stage.num_tasks, NODES[-1]
        if kind == "connect":  # one node does all rounds; they all count as the first
            num_tasks, most = work.plan.num_ranges, 1
        rounds = sum(name.startswith(kind) for name in measured[-1])
        found = measured[-1][kind if kind in measured[-1] else f"{kind}-1"]
        more, (first, *others) = num_tasks / found["tasks"], found["seconds_of_tasks"]
        usual = np.array(others or [first])  # the first also loads what all need
        begin = run["seconds_to_start_a_process"] + max(0.0, first - np.median(usual))
        drawn = disturb(draw.choice(usual, (DRAWS, num_tasks)) * longer.get(kind, more), draw)
        ends = [[run_stage(one, min(n, most), CORES, begin) for n in NODES] for one in drawn]
        seconds = START + np.mean(ends, axis=0) * rounds
        waits = {"cores": drawn.sum() / DRAWS / most / CORES * rounds}
        waits["its start"] = START + begin * rounds
        waits["its longest task"] = seconds[-1] - sum(waits.values())
        few = {"pieces.zst": 1, "sampled": 1, "json": more, "counts": more}
        new = Counter({s: n * rounds * few.get(s, larger) / 1e9 for s, n in found["bytes"].items()})
        read = [written[s] * (NODES[-1] if s in SHARED else 1) for s in READS[kind].split()]
        written += new
        yield {
            "stage": kind, "tasks": num_tasks * rounds, "seconds": seconds.round(1).tolist(),
            "limit": max(waits, key=waits.__getitem__), "gigabytes_read": sum(read),
            "files": round(found["files"] * more * rounds), "gigabytes_written": sum(new.values()),
        }  # fmt: skip


def describe_schedules(runs: Sequence[Result]) -> dict[str, Any]:
    """Return the stages of each preparation, and its hours on each number of nodes."""
    result: dict[str, Any] = {"totals": []}
    for step in WHOLE:
        alone = [one for one in runs if (one["step"], one["cores"]) == (step, 1)]
        result[step] = list(simulate(alone))
        seconds = np.sum([stage["seconds"] for stage in result[step]], axis=0).tolist()
        result["totals"] += [
            {"step": step, "nodes": nodes, "hours": one / 3600, "times_one_node": seconds[0] / one}
            for nodes, one in zip(NODES, seconds, strict=True)
        ]
    return result


def main(arguments: argparse.Namespace) -> None:
    measured = find_result("preparation-scale") or sys.exit("run preparation-scale first")
    result = describe_schedules(measured["runs"])
    print(*result["totals"], *result["everything"], sep="\n")
    write_result("preparation-schedule", {"measured": measured["file"], **result})
