"""``maskwright sweep``: many runs of one command with other settings, ranked by a metric.

Each trial is a process of its own, so that one that fails takes nothing with it. optuna chooses
the settings (tree-structured Parzen estimator, Bergstra et al., 2011) and keeps the trials in
``study.db``: a sweep that was stopped or killed is resumed by the same command, and an unfinished
trial resumes from its checkpoint. Which settings are tried depends on the seed and on the scores
alone. Lists of choices without a range have finitely many combinations, and each is tried once.
"""

import math
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NoReturn

from maskwright.config import FieldInfo, convert, fields_of
from maskwright.console import say
from maskwright.errors import ConfigError, InputError, StoppedError, TrainingError, suggest
from maskwright.extras import import_extra
from maskwright.files import locking_folder, write_text
from maskwright.finetuning.metrics import (
    BY_ERROR,
    LOWER_IS_BETTER,
    RESULTS_NAME,
    read_deciding_score,
)
from maskwright.logs import read_metrics
from maskwright.report.pages import NO_SCORE, render_sweep
from maskwright.runs.run_directory import METRICS_NAME, REPORT_NAME, has_checkpoint
from maskwright.sweeping.plan import (
    CONFIGS,
    INCOMPARABLE,
    Command,
    add_budget,
    find_value,
    list_flags,
)
from maskwright.sweeping.processes import STOPPED, run_process

STUDY_NAME = "study.db"
# Of fine-tuning; the rates are those of narrow and of wide encoders.
DEFAULT_SPACE = ("learning_rate=5e-5..3e-3:log", "epochs=2..10", "layer_decay=0.7..1.0")
_MAX_FAILURES = 3  # one after the other: then it is not the settings
Value = float | int | str
_RANGE = re.compile(r"(?P<low>[^.:]+(?:\.\d+[^.:]*)?)\.\.(?P<high>[^:]+?)(?P<log>:log)?")


@dataclass(frozen=True)
class Dimension:
    """One setting and its values: a range with both ends, or choices as flags spell them.

    Of a range with `is_log` equal ratios are equally likely, not equal differences.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_integer: bool = False
    choices: tuple[str, ...] = ()

    def draw(self, trial: Any) -> Value:
        """Return the value that an optuna trial suggests."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.is_integer:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.is_log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.is_log)


def parse_space(specifications: Iterable[str], config: type) -> list[Dimension]:
    """Return the dimensions that `--over` names, each a field of `config`.

    Raise ConfigError for a range or a choice that the field does not take, or if scores of trials
    that differ in the field are not comparable; InputError for no such field, or one twice.
    """
    known = {info.name: info for info in fields_of(config)}
    dimensions = [_parse(specification, known) for specification in specifications]
    names = [dimension.name for dimension in dimensions]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"--over names {min(repeated)} twice. Remove one.")
    return dimensions


def list_arms(space: Sequence[Dimension]) -> dict[str, dict[str, str]] | None:
    """Return an arm for each combination of choices, by name; None if a dimension is a range."""
    if not space or not all(dimension.choices for dimension in space):
        return None
    combinations = product(*(dimension.choices for dimension in space))
    arms: dict[str, dict[str, str]] = {}
    for values in combinations:
        fields = {one.name: value for one, value in zip(space, values, strict=True)}
        name = ",".join(f"{name.rpartition('.')[2]}={value}" for name, value in fields.items())
        arms[name] = fields
    return arms


def _parse(specification: str, known: dict[str, FieldInfo]) -> Dimension:
    name, _, text = specification.partition("=")
    if name not in known:
        raise suggest("setting", name, list(known), "--over FIELD=LOW..HIGH or FIELD=A,B")
    if name.startswith(INCOMPARABLE):
        rule = "cannot be varied: trials with another loss, metric or held-out text do not compare"
        remedy = "Run each value by itself, and put the runs side by side with maskwright compare."
        raise ConfigError(name, text, rule, remedy)
    annotation = known[name].annotation
    found = _RANGE.fullmatch(text)
    if found is None:
        choices = tuple(filter(None, text.split(",")))
        if len(choices) < 2:
            rule = "is neither a range nor a list of values"
            raise ConfigError(name, text, rule, f"Give {name}=LOW..HIGH[:log] or {name}=A,B.")
        for choice in choices:
            convert(choice, annotation, name)
        return Dimension(name, choices=choices)
    low, high = (convert(found[end], annotation, name) for end in ("low", "high"))
    is_log = found["log"] is not None
    is_number = all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high))
    if not is_number or not low < high or (is_log and low <= 0):
        rule = "is no range of numbers" + " above 0" * is_log
        raise ConfigError(name, text, rule, "Give LOW..HIGH, the lower end first.")
    return Dimension(name, low, high, is_log, isinstance(low, int) and isinstance(high, int))


@dataclass(frozen=True)
class Trial:
    """One run: its number, its settings, and its score, which is None if it failed
    or its score is undefined."""

    number: int
    settings: Mapping[str, Value]
    score: float | None
    folder: Path


@dataclass(frozen=True)
class Sweep:
    """What is run, and what is varied; `out` is the folder of the trials."""

    command: Command
    arguments: tuple[str, ...]
    space: tuple[Dimension, ...]
    out: Path
    seed: int

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """Whether small or large scores are good: losses and errors should be small."""
        metric = find_value(self.arguments, "--metric")
        by_error = metric is None and find_value(self.arguments, "--task") in BY_ERROR
        is_small = self.command == "pretrain" or by_error or metric in LOWER_IS_BETTER
        return "minimize" if is_small else "maximize"

    def folder(self, number: int) -> Path:
        return self.out / f"trial-{number:03}"

    def process(self, number: int, settings: Mapping[str, Value]) -> list[str]:
        """Return the command of a trial, which also resumes it."""
        folder = self.folder(number)
        where = ["--out", str(folder)]
        if self.command == "pretrain":
            where = ["--runs-dir", str(folder.parent), "--name", folder.name, "--auto-resume"]
        program = [sys.executable, "-m", "maskwright", self.command]
        return [*program, *self.arguments, *list_flags(settings), *where]


def sweep(
    command: Command,
    arguments: Sequence[str],
    *,
    out: str | Path,
    over: Sequence[str] = (),
    trials: int = 12,
    minutes: float | None = None,
    seed: int = 0,
    report: Callable[[str], None] = say,
) -> list[Trial]:
    """Run a command `trials` times with other settings, and return all trials, the best first::

        sweep("pretrain", ["corpus/"], over=["optim.learning_rate=1e-3..1e-1:log"],
              trials=12, minutes=3, out="runs/rates")

    Args:
        command: ``pretrain``, whose final validation loss should be small, or ``finetune``, whose
            deciding metric on the validation examples should be large (an error: small).
        arguments: the arguments and flags of the command.
        out: the folder of the trials; if it holds this sweep, it is resumed.
        over: what to vary: ``FIELD=LOW..HIGH``, ``FIELD=LOW..HIGH:log`` or ``FIELD=A,B,C``. For
            ``finetune`` by default rate, epochs and layer decay.
        trials: how many at most, those of an earlier call included.
        minutes: the budget of each trial of ``pretrain``.
        seed: names the settings that are tried.

    Raises:
        MaskwrightError: wrong input; `out` has another sweep; the first trial reports wrong input;
            no trial has a score.
        StoppedError, KeyboardInterrupt: SIGTERM or Ctrl-C stopped a trial, which can be resumed.
    """
    if trials < 1:
        raise InputError(f"--trials = {trials} must be at least 1")
    arguments = add_budget(command, arguments, minutes)
    if not over and command == "pretrain":
        raise InputError("--over is missing: name what to vary, e.g. masking.rate=0.15,0.3,0.4")
    space = parse_space(over or DEFAULT_SPACE, CONFIGS[command])
    given = [one for one in space if find_value(arguments, f"--{one.name}") is not None]
    if given and (over or given == space):
        raise InputError(f"--{given[0].name} sets what the sweep varies. Remove it, or set --over.")
    space = [one for one in space if one not in given]
    if list_arms(space):
        raise InputError(
            "--over has lists alone, which are arms of an experiment: use maskwright.experiment"
        )
    plan = Sweep(command, tuple(arguments), tuple(space), Path(out), seed)
    plan.out.mkdir(parents=True, exist_ok=True)

    def refuse() -> NoReturn:
        raise InputError(f"{out} is in use by another sweep. Wait, or name another --out.")

    with locking_folder(plan.out, refuse, report):
        return _search(plan, trials, report)


def _search(plan: Sweep, trials: int, report: Callable[[str], None]) -> list[Trial]:
    optuna: Any = import_extra("optuna", "sweep", "maskwright sweep")
    study = _open_study(plan, optuna)
    num_before = len(_list_finished(study))
    while len(finished := _list_finished(study)) < trials:
        last = finished[num_before:][-_MAX_FAILURES:]
        if len(last) == _MAX_FAILURES and all(trial.value is None for trial in last):
            log = plan.folder(last[-1].number).with_suffix(".log")
            raise TrainingError(f"{_MAX_FAILURES} trials in a row have no score; see {log}")
        trial = _ask(study, plan, optuna)
        settings = dict(trial.params)
        shown = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in settings.items()
        )
        report(f"trial {trial.number + 1} of {trials}: {shown}")
        score = _run(plan, trial.number, settings)
        state = optuna.trial.TrialState["FAIL" if score is None else "COMPLETE"]
        study.tell(trial.number, score, state=state)
        report(f"trial {trial.number + 1}: {NO_SCORE if score is None else f'{score:.4f}'}")
        _write_page(plan, study)
    found = list_trials(plan, study)
    if found[0].score is None:
        log = found[0].folder.with_suffix(".log")
        raise TrainingError(f"no trial has a score; see {log}. Remove the cause and repeat it.")
    return found


def _open_study(plan: Sweep, optuna: Any) -> Any:
    """Return the study of a folder; a new one if there is none with a score or a checkpoint.

    Raise InputError if the folder holds another sweep, or something else.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = plan.out / STUDY_NAME
    if any(plan.out.iterdir()) and not path.exists():
        raise InputError(f"{plan.out} holds something else. Name another folder with --out.")
    where = {"storage": f"sqlite:///{path.resolve()}", "study_name": "sweep"}
    create = partial(optuna.create_study, **where, direction=plan.direction, load_if_exists=True)
    space = [{**asdict(one), "choices": list(one.choices)} for one in plan.space]  # as in JSON
    command = [plan.command, *plan.arguments]
    study, described = create(), {"command": command, "space": space, "seed": plan.seed}
    trials = study.get_trials(deepcopy=False)
    if not any(t.value is not None or has_checkpoint(plan.folder(t.number)) for t in trials):
        # such as after a mistake in the command
        optuna.delete_study(**where)
        study = create()
    elif study.user_attrs["sweep"] != described:
        raise InputError(
            f"{plan.out} holds a sweep of another command, space or seed. Repeat that command to "
            "resume it, or name another folder with --out."
        )
    study.set_user_attr("sweep", described)
    return study


def _list_finished(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]


def _ask(study: Any, plan: Sweep, optuna: Any) -> Any:
    """Return the trial that was not finished, or else a new one.

    Settings are drawn by a sampler whose seed counts the trials, so that a sweep that was killed
    tries the same ones as one that was not.
    """
    trials = study.get_trials(deepcopy=False)
    for trial in trials:
        if not trial.state.is_finished() and len(trial.params) == len(plan.space):
            return trial
    seed = (plan.seed * 1_000_003 + len(trials)) % 2**32
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    trial = study.ask()
    for dimension in plan.space:
        dimension.draw(trial)
    return trial


def _run(plan: Sweep, number: int, settings: Mapping[str, Value]) -> float | None:
    """Run a trial; return its score, or None if it fails or its score is undefined.

    Raise InputError if its input is wrong, whatever the settings; StoppedError or KeyboardInterrupt
    if it was stopped, or the sweep while it ran.
    """
    folder, log = plan.folder(number), plan.folder(number).with_suffix(".log")
    code, stopped_by = run_process(plan.process(number, settings), log)
    if stopped_by is not None or code in STOPPED:
        message = f"stopped in {folder}; the same command resumes the sweep"
        raise KeyboardInterrupt(message) if stopped_by == signal.SIGINT else StoppedError(message)
    if code == 2 and number == 0:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
        if not lines[-1].startswith(TrainingError.__name__):  # settings that diverge
            raise InputError(f"the first trial fails: {lines[-1] or f'see {log}'}")
    score = read_score(plan.command, folder) if code == 0 else None
    return score if score is not None and math.isfinite(score) else None


def read_score(command: Command, run: Path) -> float | None:
    """Return the score that a finished run is judged by."""
    if command == "pretrain":
        records = read_metrics(run / METRICS_NAME)
        return next((r["loss"] for r in reversed(records) if r.get("final")), None)
    return read_deciding_score(run) if (run / RESULTS_NAME).exists() else None


def list_trials(plan: Sweep, study: Any) -> list[Trial]:
    """Return the finished trials, the best first, failures last."""
    sign = 1 if plan.direction == "minimize" else -1
    found = [
        Trial(trial.number, dict(trial.params), trial.value, plan.folder(trial.number))
        for trial in _list_finished(study)
    ]
    return sorted(found, key=lambda t: (t.score is None, sign * (t.score or 0.0), t.number))


def _write_page(plan: Sweep, study: Any) -> None:
    trials = list_trials(plan, study)
    if trials[0].score is None:
        return  # no trial has a score
    best = ["maskwright", plan.command, *plan.arguments, *list_flags(trials[0].settings)]
    rows = [(t.folder.name, (t.folder / REPORT_NAME).exists(), t.score, t.settings) for t in trials]
    goal = "validation loss" if plan.command == "pretrain" else "validation score"
    write_text(plan.out / REPORT_NAME, render_sweep(plan.out.name, goal, best, rows))
