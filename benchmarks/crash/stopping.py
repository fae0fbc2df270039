"""A run that is asked to stop, by SIGTERM or SIGINT: how long it takes, and how it goes on."""

import random
import shutil
import signal
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.crash.killing import appearing, when
from benchmarks.crash.preparation import Preparations
from benchmarks.crash.pretraining import LOG_EVERY_STEPS, PretrainingRuns, read_state
from maskwright.logs import read_metrics

LIMIT_SECONDS = 10.0


def stop_and_go_on(
    runs: PretrainingRuns, numbers: Sequence[signal.Signals], seed: int = 0
) -> dict[str, Any]:
    """Stops one run by each signal in turn, in steps, validations and checkpoints; then it ends.

    Returns:
        ``seconds``: from each signal to the exit; ``differences``: in words.
    """
    draw, run = random.Random(seed), runs.folder / "stopped"
    seconds, found = list[float](), list[str]()
    while True:
        places = (
            when(runs.validating(run)),
            when(appearing(run / "checkpoints", ".step_"), draw.uniform(0, 0.02)),
            when(has_more_records(runs, run.name, draw.randint(1, 7))),
        )
        if len(seconds) < len(numbers):
            number = numbers[len(seconds)]
            done = runs.go_on(run, places[len(seconds) % len(places)], number)
        else:
            number, done = signal.SIGKILL, runs.go_on(run)
        if done.code != 128 + number:
            break
        seconds.append(done.seconds_to_exit)
        last = read_metrics(run / "metrics.jsonl")[-1]["step"]
        newest = max((run / "checkpoints").glob("step_*"))
        if not 0 <= read_state(newest)["step"] - last < LOG_EVERY_STEPS:
            found.append(f"{number.name} at step {last}, but the checkpoint is {newest.name}")
        if f"--resume {run}" not in done.output:
            found.append(f"{number.name}: nothing said how to go on")
    if done.code:
        raise SystemExit(
            f"after {len(seconds)} stops the exit code was {done.code}:\n{done.output}"
        )
    found += runs.compare(run)
    shutil.rmtree(run)
    return {"seconds": seconds, "differences": found}


def has_more_records(runs: PretrainingRuns, name: str, count: int) -> Callable[[], bool]:
    """Whether a run has written `count` more records than it has now."""
    path = runs.folder / name / "metrics.jsonl"
    before = len(read_metrics(path))
    return lambda: len(read_metrics(path)) >= before + count


def interrupt_preparation(preparations: Preparations, number: signal.Signals) -> float:
    """Seconds from the signal to the exit of a preparation that is at its shards."""
    out = preparations.folder / f"interrupted-{number.name}"
    done = preparations.go_on(out, when(appearing(out / "train", ".")), number)
    if done.code not in (-number, 128 + number):
        raise SystemExit(f"after {number.name} the exit code was {done.code}:\n{done.output}")
    return done.seconds_to_exit
