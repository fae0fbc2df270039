"""Hours that preparing a terabyte takes on 1, 10 and 100 nodes: the schedule, simulated.

Tasks take what those of the largest text of the newest `preparation-scale` took on one core, longer
by their megabytes, or where they read files of all blocks by these, as all its texts say. They are
dealt as the engines do: rank r of n has the tasks r, r + n, …, and its processes take the next one
when they are free. It is assumed that the file system keeps up; what it carries is counted as if
each of 100 nodes read once what all tasks of a stage read.
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


def simulate(runs: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Yield what each stage takes, given runs on one core; the last has most text."""
    run, draw, written = runs[-1], np.random.default_rng(0), Counter[str]()
    config = from_mapping(PrepareConfig, {"select": SELECT[run["step"]]})
    work, larger = Work(Path()), TERABYTE / run["megabytes"]
    file = Source("", "", "plain", "", Path(__file__), span=Span(0, FILE * 1_000_000))
    files = [file] * round(TERABYTE / FILE)
    blocks = cut_into_blocks(files, config.corpus, config.block_megabytes * 1_000_000, print)
    work.plan = Plan([], blocks, 0, {}, config, seed=0, sample_share=0.0, directory="")
    measured = [{stage["stage"]: stage for stage in one["stages"]} for one in runs]
    longer: dict[str, Any] = {"vocabulary": 1.0}  # its text is bounded
    for kind in {"exact", "near", "finish"} & measured[-1].keys():
        usual = [np.median(one[kind]["seconds_of_tasks"]) for one in measured]
        line = np.polyfit([one["blocks"] for one in runs], usual, 1)
        longer[kind] = max(1.0, float(np.polyval(line, len(blocks)) / usual[-1]))
    sizes = np.array([FILE * len(block.sources) for block in blocks])
    longer |= dict.fromkeys(("read", "encode"), sizes * run["blocks"] / run["megabytes"])
    for stage in list_stages(work, ahead=True):
        kind, num_tasks, most = stage.name, stage.num_tasks, NODES[-1]
        if kind == "connect":  # one node does all rounds; they all count as the first
            num_tasks, most = work.plan.num_ranges, 1
        rounds = sum(name.startswith(kind) for name in measured[-1])
        found = measured[-1][kind if kind in measured[-1] else f"{kind}-1"]
        more, (first, *others) = num_tasks / found["tasks"], found["seconds_of_tasks"]
        usual = np.array(others or [first])  # the first one loads what all need
        begun = run["seconds_to_start_a_process"] + max(0.0, first - np.median(usual))
        tasks = draw.choice(usual, (DRAWS, num_tasks)) * longer.get(kind, more)
        drawn = [disturb(one, draw) for one in tasks]
        ends = [[run_stage(one, min(n, most), CORES, begun) for n in NODES] for one in drawn]
        seconds = START + np.mean(ends, axis=0) * rounds
        ideal, begun = np.sum(drawn) / DRAWS / most / CORES * rounds, START + begun * rounds
        rest = float(seconds[-1]) - ideal - begun
        waits = {"cores": ideal, "its start": begun, "its longest task": rest}
        reads = READS.get(kind, "").split()
        read = sum(written[s] * (NODES[-1] if s in SHARED else 1) for s in reads)
        few = {"pieces.zst": 1, "sampled": 1, "json": more, "counts": more}
        sizes = Counter({s: n * few.get(s, larger) / 1e9 for s, n in found["bytes"].items()})
        written += sizes
        yield {
            "stage": kind, "tasks": num_tasks * rounds, "seconds": seconds.round(1).tolist(),
            "files": round(found["files"] * more) * rounds,
            "gigabytes_read": read + TERABYTE / 1e3 * (kind == "read"),
            "gigabytes_written": sum(sizes.values()) * rounds,
            "limit": max(waits, key=waits.__getitem__),
        }  # fmt: skip


def describe_schedules(runs: Sequence[Result]) -> dict[str, Any]:
    """Return the stages of each preparation, and its hours on each number of nodes."""
    result: dict[str, Any] = {"totals": []}
    for step in SELECT:
        result[step] = list(
            simulate([one for one in runs if (one["step"], one["cores"]) == (step, 1)])
        )
        seconds = np.sum([stage["seconds"] for stage in result[step]], axis=0)
        for nodes, total in zip(NODES, seconds.tolist(), strict=True):
            faster = float(seconds[0] / total)
            result["totals"].append(
                {"step": step, "nodes": nodes, "hours": total / 3600, "times_one_node": faster}
            )
    return result


def main(arguments: argparse.Namespace) -> None:
    measured = find_result("preparation-scale") or sys.exit("run preparation-scale first")
    result = describe_schedules(measured["runs"])
    print(*result["totals"], *result["everything"], sep="\n")
    write_result("preparation-schedule", {"measured": measured["file"], **result})
