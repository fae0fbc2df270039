"""Programs killed at random moments: they must end as if nothing had happened.

    python -m benchmarks.crash_test [--kills 50] [--seed 0] [--only pretrain|prepare|finetune]

Every kill is SIGKILL to the whole process group; half of those of a run are aimed at a checkpoint
while it is being written. Then a run is stopped by SIGTERM and by SIGINT, several times each.
Text and model are small and invented, so that nothing has to be downloaded; about ten minutes.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import write_result
from benchmarks.crash.finetuning import FinetuningRuns
from benchmarks.crash.killing import when
from benchmarks.crash.preparation import Preparations
from benchmarks.crash.pretraining import PretrainingRuns
from benchmarks.crash.stopping import LIMIT_SECONDS, interrupt_preparation, stop_and_go_on

_STOPS = 6  # by each signal
_STOP_AFTER = 10  # scores of a fine-tuning, which are more than a seed has
_CHECKPOINT_PLACES = ("writing a checkpoint", "between the two renames of a checkpoint")


def test_pretraining(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kills and stops a run; the figures for the result file."""
    runs = PretrainingRuns(folder)
    tally = runs.kill(kills, seed)
    result: dict[str, Any] = {
        "kills": tally.kills.total(),
        "kills_by_place": dict(tally.kills.most_common()),
        "kills_inside_checkpoint_writing": sum(tally.kills[p] for p in _CHECKPOINT_PLACES),
        "resumed": tally.resumed,
        "started_again": tally.started_again,
        "runs_compared_bitwise": tally.runs,
        "unreadable_checkpoints": tally.unreadable_checkpoints,
        **list_differences(tally.differences),
    }
    for number in (signal.SIGTERM, signal.SIGINT):
        stopped = stop_and_go_on(runs, [number] * _STOPS, seed)
        result[number.name] = {
            "stops": len(stopped["seconds"]),
            "longest_seconds": round(max(stopped["seconds"]), 2),
            "limit_seconds": LIMIT_SECONDS,
            **list_differences(stopped["differences"]),
        }
    return result


def test_preparation(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kills a preparation; the figures for the result file."""
    preparations = Preparations(folder)
    tally = preparations.kill(kills, seed)
    seconds = [interrupt_preparation(preparations, s) for s in (signal.SIGTERM, signal.SIGINT)]
    return {
        "kills": tally.kills.total(),
        "kills_by_place": dict(tally.kills.most_common()),
        "preparations_compared_bytewise": tally.preparations,
        **list_differences(tally.differences),
        "longest_seconds_to_exit": round(max(seconds), 2),
    }


def test_finetuning(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kills a fine-tuning, and stops it by SIGTERM; the figures for the result file."""
    runs = FinetuningRuns(folder)
    tally = runs.kill(kills, seed)
    out, seconds = folder / "stopped", list[float]()
    for _ in range(_STOPS):
        done = runs.go_on(out, when(runs.has_more_records(out, _STOP_AFTER)), signal.SIGTERM)
        if done.code != 128 + signal.SIGTERM:
            break
        seconds.append(done.seconds_to_exit)
    runs.go_on(out)
    return {
        "kills": tally.kills.total(),
        "kills_by_place": dict(tally.kills.most_common()),
        "resumed": tally.resumed,
        "started_again": tally.started_again,
        "runs_compared_bitwise": tally.runs + 1,
        **list_differences([*tally.differences, *runs.compare(out)]),
        "stops_by_SIGTERM": len(seconds),
        "longest_seconds_to_exit": round(max(seconds), 2),
    }


def list_differences(found: list[str]) -> dict[str, Any]:
    """How many there are, and which."""
    return {"differences": len(found), **({"different": found} if found else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill it again and again.")
    parser.add_argument("--kills", type=int, default=50, help="of each program [50]")
    parser.add_argument("--seed", type=int, default=0, help="draws the moments [0]")
    parser.add_argument("--only", choices=["pretrain", "prepare", "finetune"], help="one of them")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"seed": arguments.seed}
    programs = {
        "pretrain": test_pretraining,
        "prepare": test_preparation,
        "finetune": test_finetuning,
    }
    for name, test in programs.items():
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="maskwright-crash-") as folder:
                result[name] = test(Path(folder), arguments.kills, arguments.seed)
            print(f"{name}: {result[name]}", flush=True)
    write_result("crash-test" + f"-{arguments.only}" * bool(arguments.only), result)
    if has_differences(result):
        sys.exit("there are differences")


def has_differences(result: Any) -> bool:
    """Whether a part of the result names any."""
    if not isinstance(result, dict):
        return False
    return bool(result.get("differences")) or any(map(has_differences, result.values()))


if __name__ == "__main__":
    main()
