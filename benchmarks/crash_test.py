"""Kill and stop programs at random times: their results must equal those of undisturbed runs.

Every kill is a SIGKILL to the whole process group; half of the kills of a pretraining run hit while
a checkpoint is written. Then a run is stopped by SIGTERM and by SIGINT, several times each. Text
and model are small and generated, so nothing is downloaded. It takes about ten minutes.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import write_result
from tests.reliability.crash.finetuning import FinetuningRuns
from tests.reliability.crash.job import Job
from tests.reliability.crash.preparation import Preparations
from tests.reliability.crash.pretraining import PretrainingRuns

JOBS: dict[str, type[Preparations | PretrainingRuns | FinetuningRuns]] = {
    "pretrain": PretrainingRuns,
    "prepare": Preparations,
    "finetune": FinetuningRuns,
}
LIMIT_SECONDS = 10.0  # from a signal to the exit


def kill_and_stop(job: Job, kills: int, stops: int, seed: int) -> dict[str, Any]:
    """Kill and stop a job; return the figures for the result file."""
    tally = job.kill(kills, seed)
    inside = sum(count for place, count in tally.kills.items() if "checkpoint" in place)
    result: dict[str, Any] = {
        "kills": tally.kills.total(),
        "kills_by_place": dict(tally.kills.most_common()),
        "kills_inside_checkpoint_writing": inside,
        "resumed": tally.resumed,
        "started_again": tally.started_again,
        "runs_compared": tally.runs,
        "unreadable_checkpoints": tally.unreadable_checkpoints,
        **list_differences(tally.differences),
    }
    for number in (signal.SIGTERM, signal.SIGINT):
        stopped = job.stop(number, stops, seed)
        result[number.name] = {
            "stops": len(stopped["seconds"]),
            "longest_seconds": round(max(stopped["seconds"], default=0.0), 2),
            "limit_seconds": LIMIT_SECONDS,
            **list_differences(stopped["differences"]),
        }
    return result


def list_differences(found: list[str]) -> dict[str, Any]:
    """Return the number of differences, and which they are."""
    return {"differences": len(found), **({"different": found} if found else {})}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=50, help="kills of each program [50]")
    parser.add_argument("--stops", type=int, default=6, help="stops by each signal [6]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random times [0]")
    parser.add_argument("--only", choices=JOBS, help="test only this program")


def main(arguments: argparse.Namespace) -> None:
    result: dict[str, Any] = {"seed": arguments.seed}
    has_failed = False
    for name, job in JOBS.items():
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="maskwright-crash-") as folder:
                numbers = (arguments.kills, arguments.stops, arguments.seed)
                result[name] = kill_and_stop(job(Path(folder)), *numbers)
            print(f"{name}: {result[name]}", flush=True)
            figures = [result[name], result[name]["SIGTERM"], result[name]["SIGINT"]]
            has_failed |= any(one["differences"] for one in figures)
            has_failed |= any(one["longest_seconds"] > LIMIT_SECONDS for one in figures[1:])
    write_result("crash-test" + f"-{arguments.only}" * bool(arguments.only), result)
    if has_failed:
        sys.exit("a program did not end as the undisturbed one, or not in time")
