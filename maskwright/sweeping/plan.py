"""The plan of an experiment: arms, which are named sets of fields, each with several seeds."""

import hashlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from maskwright.config import convert, fields_of, read_yaml
from maskwright.errors import ConfigError, InputError, suggest
from maskwright.files import JsonObject
from maskwright.finetuning.config import FinetuneConfig
from maskwright.runs.config import PretrainConfig

Command = Literal["pretrain", "finetune"]
CONFIGS: dict[Command, type] = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
# Settings that change what a run is scored on, or by which metric; a dot ends a whole section.
INCOMPARABLE = (
    "corpus.", "data.max_seq_length", "data.packed", "data.special_tokens", "init_from", "metric",
    "objective.", "select.", "teacher", "text", "tokenizer.", "train.final_valid_tokens",
    "train.valid_seq_length",
)  # fmt: skip
_OF_PLAN = ("seed", "seeds", "first_seed")
DEFAULT_SEEDS = 3
_NAME = re.compile(r"[A-Za-z0-9][\w.=,+-]{0,79}")
_KEYS = ("command", "arguments", "arms", "seeds", "then", "primary")


@dataclass(frozen=True)
class Plan:
    """An experiment.

    Attributes:
        command: of each run.
        arguments: of all runs alike.
        arms: by name, the fields over these arguments as flags spell them; the others are compared
            with the first one.
        seeds: the same ones for each arm.
        then: commands for each finished run: ``evaluate`` or ``finetune`` with their flags.
        primary: the score that the experiment is about; None: the default of `command`.
        out: the folder of the runs.
    """

    command: Command
    arguments: tuple[str, ...]
    arms: Mapping[str, Mapping[str, str]]
    seeds: tuple[int, ...]
    then: tuple[tuple[str, ...], ...]
    primary: str | None
    out: Path

    def locate_run(self, arm: str, seed: int) -> Path:
        """Return the run directory of an arm and a seed."""
        return self.out / f"{arm}-{seed}"

    def locate_then(self, arm: str, seed: int, then: Sequence[str]) -> Path:
        """Return the result of a command of `then`: a JSON file, or a run of ``finetune``."""
        key = hashlib.sha256("\0".join(then).encode()).hexdigest()[:8]
        suffix = ".json" if then[0] == "evaluate" else ""
        return self.out / f"{arm}-{seed}.{then[0]}-{key}{suffix}"

    def make_run(self, arm: str, seed: int) -> list[str]:
        """Return the command of a run, which also resumes it."""
        folder = self.locate_run(arm, seed)
        flags = list_flags(self.arms[arm])
        if self.command == "pretrain":
            where = ["--runs-dir", str(folder.parent), "--name", folder.name, "--auto-resume"]
            flags += ["--seed", str(seed), *where]
        else:
            flags += ["--first_seed", str(seed), "--seeds", "1", "--out", str(folder)]
        return [sys.executable, "-m", "maskwright", self.command, *self.arguments, *flags]

    def make_then(self, arm: str, seed: int, then: Sequence[str]) -> list[str]:
        """Return a command for a finished run."""
        verb, *flags = then
        out = self.locate_then(arm, seed, then)
        where = ["--out", str(out)]
        if scores_pairs(then):
            where += ["--choices", str(locate_choices(out))]
        run = str(self.locate_run(arm, seed))
        return [sys.executable, "-m", "maskwright", verb, run, *flags, *where]

    def describe(self) -> JsonObject:
        """Return the plan for ``plan.json``."""
        return {
            "command": self.command,
            "arguments": list(self.arguments),
            "arms": {name: dict(fields) for name, fields in self.arms.items()},
            "seeds": list(self.seeds),
            "then": [list(one) for one in self.then],
            "primary": self.primary,
        }


def locate_choices(out: Path) -> Path:
    """Return the file of the choices on minimal pairs beside the scores of a suite."""
    return out.with_name(f"{out.stem}.choices.json")


def find_suites(then: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the suites of a command of `Plan.then`."""
    if then[0] != "evaluate":
        return ()
    return tuple(name.strip() for name in (find_value(then, "--suite") or "mlm,fill").split(","))


def scores_pairs(then: Sequence[str]) -> bool:
    """Return True if a command of `Plan.then` scores minimal pairs."""
    return "blimp" in find_suites(then)


def find_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of the last ``FLAG VALUE`` or ``FLAG=VALUE``."""
    found = None
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else following
    return found


def add_budget(command: Command, arguments: Sequence[str], minutes: float | None) -> list[str]:
    """Return the arguments with the budget of each run of ``pretrain``.

    Raise InputError if ``finetune`` is given one.
    """
    if minutes is None:
        return list(arguments)
    if command == "finetune":
        raise InputError("--minutes applies to pretrain only. Vary epochs, or set --epochs.")
    return [*arguments, "--train.max_minutes", str(minutes)]


def list_flags(fields: Mapping[str, object]) -> list[str]:
    """Return settings as flags; a float as its shortest text."""
    return [part for name, value in fields.items() for part in (f"--{name}", str(value))]


def read_plan(path: Path) -> JsonObject:
    """Return the arguments of `make_plan` in a YAML file.

    Raise InputError for a key that is none, or a value of another kind.

    Args:
        path: the file: ``command``, ``arguments``, ``arms``, ``seeds``, ``then``, ``primary``.
    """
    content = read_yaml(path)
    for key in content:
        if key not in _KEYS:
            raise suggest(f"key in {path}", str(key), _KEYS, f"the keys are {', '.join(_KEYS)}")
    for key, kinds in (("arms", dict), ("arguments", list | str), ("then", list)):
        if key in content and not isinstance(content[key], kinds):
            raise ConfigError(f"{path}: {key}", content[key], "is of the wrong kind", _SHAPES[key])
    arms: dict[Any, Any] = content.get("arms", {})
    for name, fields in arms.items():
        if not isinstance(fields, dict | None):
            raise ConfigError(
                f"{path}: arms.{name}", fields, "is no set of fields", _SHAPES["arms"]
            )
    given = content.get("arguments", [])
    return {
        **content,
        "arms": {str(name): fields or {} for name, fields in arms.items()},
        "arguments": shlex.split(given) if isinstance(given, str) else [*map(str, given)],
    }


_SHAPES = {
    "arms": "Give each arm its fields: {low: {masking.rate: 0.15}}.",
    "arguments": "Give the arguments of the command as text or as a list.",
    "then": 'Give a list of commands: ["evaluate --suite blimp"].',
}


def parse_arms(given: Sequence[Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the arms of ``--arm NAME FIELD=VALUE …``; raise InputError for another form."""
    arms: dict[str, dict[str, str]] = {}
    for name, *settings in given:
        if name in arms or "=" in name:
            why = "twice" if name in arms else "without a name"
            raise InputError(f"--arm {name} is given {why}. Give --arm NAME FIELD=VALUE ….")
        pairs = [one.partition("=") for one in settings]
        wrong = [one for one, (field, equals, _) in zip(settings, pairs, strict=True) if not equals]
        if wrong:
            raise InputError(
                f"--arm {name}: {wrong[0]} is not FIELD=VALUE. Put arguments of the command before "
                "--arm."
            )
        arms[name] = {field: value for field, _, value in pairs}
    return arms


def make_plan(
    command: Command,
    arguments: Sequence[str],
    *,
    out: str | Path,
    arms: Mapping[str, Mapping[str, Any]],
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    then: Sequence[str | Sequence[str]] = (),
    primary: str | None = None,
) -> Plan:
    """Return a plan; the arguments are those of `maskwright.sweeping.experiment.experiment`.

    Raise InputError or ConfigError for arms, seeds or commands that cannot be run or compared.
    """
    if command not in CONFIGS:
        raise suggest("command", str(command), list(CONFIGS), "give pretrain or finetune")
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise InputError(f"--seeds = {seeds} must be a number of 1 or more, or different seeds")
    if len(arms) < 2:
        raise InputError("an experiment needs two arms or more. Add --arm NAME FIELD=VALUE.")
    spelled = {name: _check_arm(name, arms[name], command, arguments) for name in arms}
    for first, *same in _group_equal(spelled):
        if same:
            raise InputError(f"the arms {first} and {same[0]} have the same fields. Remove one.")
    commands = tuple(tuple(shlex.split(o)) if isinstance(o, str) else tuple(o) for o in then)
    for one in commands:
        if not one or one[0] not in ("evaluate", "finetune") or command == "finetune":
            rule = "must be an evaluate or finetune command after pretrain"
            raise InputError(f"--then '{shlex.join(one)}' {rule}: --then 'evaluate --suite blimp'")
        if "glue" in find_suites(one):
            raise InputError("--then has no suite glue. Give --then 'finetune --preset sst2 …'.")
    suites = [suite for one in commands for suite in find_suites(one)]
    if repeated := {suite for suite in suites if suites.count(suite) > 1}:
        raise InputError(f"--then has the suite {min(repeated)} twice. Remove one.")
    return Plan(command, tuple(arguments), spelled, numbers, commands, primary, Path(out))


def _group_equal(arms: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, fields in arms.items():
        groups.setdefault(tuple(sorted(fields.items())), []).append(name)
    return list(groups.values())


def _check_arm(
    name: str, fields: Mapping[str, Any], command: Command, arguments: Sequence[str]
) -> dict[str, str]:
    """Return the fields of an arm as flags spell them."""
    if not _NAME.fullmatch(name):
        rule = "must be a name of letters, digits and . _ - to be one of a folder"
        raise InputError(f"the arm {name} {rule}")
    known = {info.name: info.annotation for info in fields_of(CONFIGS[command])}
    spelled: dict[str, str] = {}
    for field, value in fields.items():
        if field not in known:
            raise suggest("setting", str(field), list(known), f"--arm {name} FIELD=VALUE")
        if field in _OF_PLAN:
            raise ConfigError(field, value, "is not of an arm: all have the same", "Use --seeds.")
        if find_value(arguments, f"--{field}") is not None:
            raise InputError(f"--{field} sets what the arm {name} sets. Remove one.")
        spelled[field] = spell(value)
        convert(spelled[field], known[field], field)
    return spelled


def spell(value: Any) -> str:
    """Return a value of YAML or Python as a flag spells it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(spell, cast(Sequence[Any], value)))
    return str(value)


def find_incomparable(plan: Plan) -> str | None:
    """Return a field of an arm that makes losses of runs incomparable, or None."""
    fields = (field for fields in plan.arms.values() for field in fields)
    return next((field for field in fields if field.startswith(INCOMPARABLE)), None)
