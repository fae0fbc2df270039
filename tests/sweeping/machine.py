"""Processes of a sweep that write their results at once, without training."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.sweeping.processes import Job

Result = Callable[[float, int], float]


class EndedProcess:
    """A process that has ended with an exit code."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode

    def __enter__(self) -> "EndedProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def poll(self) -> int:
        return self.returncode


def name_job(job: Job) -> str:
    """Return the run directory or the result that a command writes."""
    flag = "--name" if "--name" in job.command else "--out"
    return Path(job.command[job.command.index(flag) + 1]).name


class Machine:
    """Runs of pretrain, evaluate and finetune.

    Attributes:
        jobs: what was run, by the name of its result, in order.
        codes: exit codes by that name; others are 0.
        metric: the deciding metric of fine-tuning.
        last: the last command.
        effect: the loss of a masking rate, to which the seed adds its luck.
    """

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.environments: list[dict[str, str]] = []
        self.codes: dict[str, int] = {}
        self.metric = "accuracy"
        self.last: list[str] = []
        self.said = "InputError: a mistake\n"
        self.effect: Callable[[float], float] = lambda rate: abs(rate - 0.3)

    def __call__(self, job: Job) -> EndedProcess:
        name = name_job(job)
        self.jobs.append(name)
        self.environments.append(dict(job.environment))
        code = self.codes.pop(name, 0)
        job.log.write_text(self.said if code else "")
        if code == 0:
            self._write(job)
        return EndedProcess(code)

    def _write(self, job: Job) -> None:
        words = self.last = list(job.command)

        def find(flag: str) -> str:
            return words[words.index(flag) + 1]

        verb = words[words.index("maskwright") + 1]
        if verb == "pretrain":
            run = Path(find("--runs-dir")) / find("--name")
            self._train(run, float(find("--masking.rate")), int(find("--seed")))
        elif verb == "evaluate":
            write_suite(Path(find("--out")), Path(find("--choices")))
        else:
            run = Path(find("--out"))
            run.mkdir()
            value = 0.5 + zlib.crc32(run.name.encode()) / 2**34
            scores = {self.metric: {"mean": value, "deviation": None}}
            results = {"deciding_metric": self.metric, "valid_examples": 9, "scores": scores}
            if self.metric == "found":  # of an embedding model
                results = {"found": value}
            (run / "results.json").write_text(json.dumps(results))

    def _train(self, run: Path, rate: float, seed: int) -> None:
        run.mkdir(exist_ok=True)
        luck, noise = (np.random.default_rng([seed, n]).normal() for n in (0, round(100 * rate)))
        loss = 5 + self.effect(rate) + 0.1 * luck + 0.01 * noise
        records = [
            {"split": "valid", "step": step, "tokens": 100 * step, "seconds": 60.0 * step,
             "loss": loss + 1 / step, "seen_mask_accuracy": 0.2, "final": step == 4}
            for step in (1, 2, 4)
        ]  # fmt: skip
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (run / "metrics.jsonl").write_text(lines)


def write_suite(out: Path, choices: Path) -> None:
    """Write a result of the suite blimp: 30 pairs of two paradigms, better in the arm ``high``."""
    draw = np.random.default_rng(zlib.crc32(out.name.encode()))
    share = 0.9 if out.name.startswith("high") else 0.6
    credits = {name: (draw.random(15) < share).astype(float).tolist() for name in ("a/b", "a/c")}
    choices.write_text(json.dumps({"fingerprint": "x", "choices": credits}))
    mean = float(np.mean([np.mean(one) for one in credits.values()]))
    score: dict[str, Any] = {"name": "blimp/mean_over_paradigms", "value": mean}
    out.write_text(json.dumps({"suites": [{"suite": "blimp", "scores": [score]}]}))
