"""``maskwright sweep`` with arms: runs of named sets of fields with several seeds, compared.

Each run is a process of its own, and so is each suite or fine-tuning after it. What has a result is
not run again, so the same command resumes an experiment; further arms, seeds and suites may be
added to it.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from maskwright.console import say
from maskwright.errors import InputError, StoppedError, TrainingError
from maskwright.files import locking_folder, read_object, write_json
from maskwright.preparation.processes import count_cores
from maskwright.runs.run_directory import METRICS_NAME, has_checkpoint
from maskwright.sweeping.plan import (
    DEFAULT_SEEDS,
    Command,
    Plan,
    locate_choices,
    make_plan,
)
from maskwright.sweeping.processes import STOPPED, Job, run_jobs
from maskwright.sweeping.results import (
    Experiment,
    analyze,
    check_primary,
    has_result,
    is_trained,
    write_results,
)

PLAN_NAME = "plan.json"
_MAX_BYTES = 1 << 24
_MAX_FAILURES = 3  # one after the other: then it is not the arm


def experiment(
    command: Command,
    arguments: Sequence[str],
    *,
    out: str | Path,
    arms: Mapping[str, Mapping[str, Any]],
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    then: Sequence[str | Sequence[str]] = (),
    primary: str | None = None,
    jobs: int | None = None,
    report: Callable[[str], None] = say,
) -> Experiment:
    """Run each arm with each seed, and compare the arms with the first one::

        found = experiment("pretrain", ["corpus/", "--train.max_tokens", "2000000"],
                           arms={"low": {"masking.rate": 0.15}, "high": {"masking.rate": 0.4}},
                           seeds=3, then=["evaluate --suite blimp"], out="runs/rates")
        [claim] = found["claims"]

    Args:
        command: ``pretrain`` or ``finetune``.
        arguments: the arguments and flags of the command, the same for all runs.
        out: the folder of the runs; if it holds this experiment, it is resumed.
        arms: by name, fields over these arguments. The first arm is what the others differ from.
        seeds: how many, from 0, or which.
        then: commands after each run of ``pretrain``: ``evaluate`` or ``finetune`` with flags.
        primary: the score that the experiment is about; default: the validation loss, or of
            ``finetune`` its deciding metric. All others are exploratory.
        jobs: how many runs at once; default: one on each card, or one on the CPU.
        report: is called with each line of progress.

    Returns:
        the content of ``experiment.json``.

    Raises:
        MaskwrightError: wrong input; `out` has another experiment; the first run reports wrong
            input; no arm has a run to compare.
        StoppedError, KeyboardInterrupt: SIGTERM or Ctrl-C stopped it; the same call resumes it.
    """
    plan = make_plan(
        command, arguments, out=out, arms=arms, seeds=seeds, then=then, primary=primary
    )
    check_primary(plan)
    if jobs is not None and not 1 <= jobs <= max(count_cores(), _count_cards()):
        raise InputError(f"--jobs = {jobs} must be at least 1 and at most the cores or cards")
    plan.out.mkdir(parents=True, exist_ok=True)

    def refuse() -> NoReturn:
        raise InputError(f"{out} is in use by another process. Wait, or name another --out.")

    with locking_folder(plan.out, refuse, report):
        _claim_folder(plan)
        run = _Runner(plan, jobs or max(1, _count_cards()), report)
        run.finish()
        found = analyze(plan, run.failed)
        write_results(plan, found)
    return found


def is_experiment(folder: Path) -> bool:
    """Return True if a folder holds an experiment."""
    return (folder / PLAN_NAME).exists()


def read_experiment(folder: Path, primary: str | None = None) -> Experiment:
    """Return the comparison of the arms of an experiment, from the scores of its runs.

    Raise InputError if there is no such score, or the plan is not one.

    Args:
        folder: of the experiment.
        primary: another primary score than that of the plan.
    """
    try:
        described = read_object(folder / PLAN_NAME, _MAX_BYTES)
        plan = make_plan(**{**described, "primary": primary or described["primary"], "out": folder})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder / PLAN_NAME} is no plan of an experiment: {error}") from None
    check_primary(plan)
    return analyze(plan)


def _claim_folder(plan: Plan) -> None:
    """Write ``plan.json``; raise InputError if the folder holds something else.

    Arms, seeds and commands of `Plan.then` may be added. Without a result yet, all may change.
    """
    path = plan.out / PLAN_NAME
    if not path.exists():
        if any(name.name != ".lock" for name in plan.out.iterdir()):
            raise InputError(f"{plan.out} holds something else. Name another folder with --out.")
    else:
        before = read_object(path, _MAX_BYTES)
        runs = [plan.out / f"{arm}-{seed}" for arm in before["arms"] for seed in before["seeds"]]
        begun = any(has_checkpoint(run) or has_result(plan.command, run) for run in runs)
        own = plan.describe()
        kept = all(before["arms"][name] == own["arms"].get(name) for name in before["arms"])
        same = all(before[key] == own[key] for key in ("command", "arguments"))
        if begun and not (same and kept):
            raise InputError(
                f"{plan.out} holds an experiment with other arguments or arms. Repeat that command "
                "to resume it (arms and seeds may be added), or name another folder with --out."
            )
    write_json(path, plan.describe())


def _count_cards() -> int:
    import torch  # takes two seconds, and mistakes in a plan are found before

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class _Runner:
    """The runs of an experiment in order: all arms of a seed, then the next seed."""

    def __init__(self, plan: Plan, num_places: int, report: Callable[[str], None]) -> None:
        self.plan, self.num_places, self.report = plan, num_places, report
        self.cards = _count_cards()
        self.chains = [(arm, seed) for seed in plan.seeds for arm in plan.arms]
        self.running: dict[int, tuple[str, int]] = {}
        self.failed: dict[tuple[str, int], Path] = {}
        self.in_a_row = 0
        self.num_ended = 0
        self.mistake: str | None = None
        self.was_stopped = False

    def finish(self) -> None:
        """Run all that has no result yet; raise as `experiment`."""
        stopped_by = run_jobs(self._next_job, self._count_places, self._end)
        if stopped_by is not None or self.was_stopped:
            message = f"stopped in {self.plan.out}; the same command resumes the experiment"
            raise (
                KeyboardInterrupt(message) if stopped_by == signal.SIGINT else StoppedError(message)
            )
        if self.mistake:
            raise InputError(f"the first run fails: {self.mistake}")
        if self.in_a_row >= _MAX_FAILURES:
            log = [*self.failed.values()][-1]
            raise TrainingError(f"{_MAX_FAILURES} runs failed one after the other; see {log}")

    def _count_places(self) -> int:
        """Return 1 until the first run trains: it prepares the text, and finds mistakes."""
        runs = (self.plan.locate_run(*chain) for chain in self.chains)
        has_begun = self.plan.command == "finetune" or any(
            (run / METRICS_NAME).exists() for run in runs
        )
        return self.num_places if has_begun else 1

    def _next_job(self, place: int) -> Job | None:
        if self.mistake or self.was_stopped or self.in_a_row >= _MAX_FAILURES:
            return None
        for chain in self.chains:
            if chain not in self.failed and chain not in self.running.values():
                job = self._find_job(*chain)
                if job is not None:
                    self.running[place] = chain
                    return Job(job.command, job.log, self._place(place))
        return None

    def _find_job(self, arm: str, seed: int) -> Job | None:
        """Return the first command of a run without a result."""
        plan, run = self.plan, self.plan.locate_run(arm, seed)
        if not is_trained(plan.command, run):
            number = self.chains.index((arm, seed)) + 1
            fields = ", ".join(f"{name} {value}" for name, value in plan.arms[arm].items())
            self.report(f"run {number} of {len(self.chains)}: {arm}, seed {seed} ({fields})")
            return Job(plan.make_run(arm, seed), run.with_name(f"{run.name}.log"))
        for then in plan.then:
            out = plan.locate_then(arm, seed, then)
            if not has_result(then[0], out):
                locate_choices(out).unlink(missing_ok=True)  # of an evaluation that was killed
                self.report(f"{arm}, seed {seed}: {' '.join(then)}")
                return Job(plan.make_then(arm, seed, then), out.with_name(f"{out.stem}.log"))
        return None

    def _place(self, place: int) -> dict[str, str]:
        """Return the environment of a place: its card, or its share of the cores."""
        if self.cards > 1:
            given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            names = given.split(",") if given else [*map(str, range(self.cards))]
            return {"CUDA_VISIBLE_DEVICES": names[place % len(names)]}
        if self.num_places > 1 and "OMP_NUM_THREADS" not in os.environ:
            return {"OMP_NUM_THREADS": str(max(1, count_cores() // self.num_places))}
        return {}

    def _end(self, job: Job, code: int) -> None:
        [place] = [n for n, chain in self.running.items() if self._owns(chain, job)]
        arm, seed = self.running.pop(place)
        self.num_ended += 1
        if code == 0:
            self.in_a_row = 0
            return
        if code in STOPPED:
            self.was_stopped = True
            return
        lines = job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
        if code == 2 and self.num_ended == 1 and not lines[-1].startswith(TrainingError.__name__):
            self.mistake = lines[-1] or f"see {job.log}"
            return
        self.in_a_row += 1
        self.failed[arm, seed] = job.log
        self.report(f"{arm}, seed {seed}: failed; see {job.log}")

    def _owns(self, chain: tuple[str, int], job: Job) -> bool:
        run = self.plan.locate_run(*chain).name
        return job.log.name == f"{run}.log" or job.log.name.startswith(
            (f"{run}.evaluate-", f"{run}.finetune-")
        )
