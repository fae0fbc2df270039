"""``maskwright sweep``: an experiment of arms and seeds, or a search where a range is varied."""

import shlex
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import maskwright
from maskwright.cli.evaluate import evaluate_parser, print_experiment
from maskwright.cli.finetune import finetune_parser
from maskwright.cli.flags import Parser
from maskwright.console import make_console, print_table, say
from maskwright.errors import InputError
from maskwright.files import JsonObject
from maskwright.report.pages import NO_SCORE
from maskwright.runs.run_directory import REPORT_NAME
from maskwright.sweeping.plan import (
    CONFIGS,
    DEFAULT_SEEDS,
    add_budget,
    find_value,
    parse_arms,
    read_plan,
)
from maskwright.sweeping.results import RESULT_NAME, TABLE_NAMES
from maskwright.sweeping.run import list_arms, parse_space

_SWEEP_HELP = """All other arguments and flags are those of the command, and shared by all runs.

an experiment, arms x seeds:
  maskwright sweep pretrain corpus/*.txt --train.max_tokens 2000000 \\
      --arm low masking.rate=0.15 --arm high masking.rate=0.4 --seeds 3 \\
      --then "evaluate --suite blimp --blimp blimp/data" --out runs/rates
  maskwright sweep rates.yaml --out runs/rates      (the same from a file)
  maskwright compare runs/rates                     (the tables again)

a search, where --over has a range:
  maskwright sweep pretrain corpus/*.txt --over optim.learning_rate=1e-3..1e-1:log \\
      --over masking.rate=0.15,0.3,0.4 --trials 12 --minutes 3 --out runs/rates
  maskwright sweep finetune runs/NAME --task classification --train mails.csv --out runs/mails

Each arm is compared with the first one by one primary score; all others are exploratory, with
adjusted p-values. Of a search the trial with the best score is the best. What was stopped or killed
is resumed by the same command.
"""
_SHOWN = 10


def sweep_parser() -> Parser:
    parser = Parser("sweep", "Compare or search the settings of a command.", _SWEEP_HELP)
    add = parser.add_argument
    add("command", help="pretrain, finetune, or a YAML file of an experiment")
    arm = "a set of fields with a name; the first arm is what the others are compared with"
    add("--arm", action="append", nargs="+", default=[], metavar=("NAME", "FIELD=VALUE"), help=arm)
    seeds = f"of each arm: a number, or several seeds [{DEFAULT_SEEDS}]"
    add("--seeds", type=int, nargs="+", metavar="N", help=seeds)
    then = "after each run of pretrain: evaluate or finetune with flags; may be repeated"
    add("--then", action="append", default=[], metavar="COMMAND", help=then)
    primary = "the score that the experiment is about [the loss]"
    add("--primary", metavar="SCORE", help=primary)
    add("--jobs", type=int, metavar="N", help="runs at once [one on each GPU, or one on the CPU]")
    over = (
        "vary a setting: FIELD=LOW..HIGH or FIELD=LOW..HIGH:log is searched; lists FIELD=A,B,C "
        "alone are arms; may be repeated [finetune: learning rate, epochs, layer decay]"
    )
    add("--over", action="append", default=[], metavar="SPACE", help=over)
    add("--trials", type=int, help="of a search: the most runs [12]")
    add("--minutes", type=float, help="budget of each run of pretrain [recipe]")
    add("--out", type=Path, required=True, help="the folder of the runs")
    add("--sweep-seed", type=int, help="of a search: names the settings tried [0]")
    return parser


def sweep(argv: Sequence[str]) -> int:
    arguments, rest = sweep_parser().parse_known_args(argv)
    if arguments.command.endswith((".yaml", ".yml")):
        return _experiment(arguments, _read_file(arguments, rest))
    if arguments.command not in CONFIGS:
        raise InputError(
            f"{arguments.command} is no command of sweep. Give pretrain, finetune or a YAML file."
        )
    arms = parse_arms(arguments.arm) or None
    if arms and arguments.over:
        raise InputError("--over has no effect with --arm. Remove one.")
    if arguments.over:
        arms = list_arms(parse_space(arguments.over, CONFIGS[arguments.command]))
    if arms is None:
        return _search(arguments, rest)
    plan: JsonObject = {"command": arguments.command, "arguments": rest, "arms": arms}
    return _experiment(arguments, plan)


def _read_file(arguments: Namespace, rest: Sequence[str]) -> JsonObject:
    for name in ("arm", "over"):
        if getattr(arguments, name):
            raise InputError(f"--{name} has no effect with {arguments.command}. Add it there.")
    plan = read_plan(Path(arguments.command))
    for key in ("command", "arms"):
        if key not in plan:
            raise InputError(f"{arguments.command} has no {key}. Add it.")
    return {**plan, "arguments": [*plan["arguments"], *rest]}


def _experiment(arguments: Namespace, plan: JsonObject) -> int:
    """Run an experiment, and print its tables and what may be claimed."""
    for name in ("trials", "sweep_seed"):
        if getattr(arguments, name) is not None:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} has no effect without a range in --over. Remove it.")
    plan["arguments"] = add_budget(plan["command"], plan["arguments"], arguments.minutes)
    if arguments.seeds is not None:
        plan["seeds"] = arguments.seeds[0] if len(arguments.seeds) == 1 else arguments.seeds
    if arguments.then:
        plan["then"] = [*plan.get("then", []), *arguments.then]
    if arguments.primary is not None:
        plan["primary"] = arguments.primary
    for then in plan.get("then", []):
        _check_then(then)
    found = maskwright.experiment(
        **plan, out=arguments.out, jobs=arguments.jobs, report=partial(say, flush=True)
    )
    say()
    print_experiment(found)
    names = (REPORT_NAME, RESULT_NAME, *TABLE_NAMES, "curves.png")
    written = ", ".join(name for name in names if (arguments.out / name).exists())
    say(f"in {arguments.out}: {written}")
    return 0


def _check_then(then: object) -> None:
    """Raise InputError now for a flag that is none, and not after the first run."""
    words = shlex.split(then) if isinstance(then, str) else []
    parsers = {"evaluate": evaluate_parser, "finetune": finetune_parser}
    if words and words[0] in parsers:
        parsers[words[0]]().parse(["RUN", *words[1:]])
        for flag in ("--out", "--choices"):
            if find_value(words, flag) is not None:
                raise InputError(f"{flag} has no effect in --then: the sweep sets it. Remove it.")


def _search(arguments: Namespace, rest: list[str]) -> int:
    for name in ("then", "primary", "jobs"):
        if getattr(arguments, name):
            raise InputError(f"--{name} has no effect without --arm. Remove it.")
    if arguments.seeds is not None:
        if arguments.command == "pretrain":
            raise InputError("--seeds has no effect on a search of pretrain. Remove it.")
        rest = [*rest, "--seeds", *map(str, arguments.seeds)]
    found = maskwright.sweep(
        arguments.command,
        rest,
        out=arguments.out,
        over=arguments.over,
        trials=12 if arguments.trials is None else arguments.trials,
        minutes=arguments.minutes,
        seed=arguments.sweep_seed or 0,
        report=partial(say, flush=True),
    )
    names = list(found[0].settings)
    rows = [
        [
            trial.folder.name,
            NO_SCORE if trial.score is None else f"{trial.score:.4f}",
            *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in values),
        ]
        for trial in found[:_SHOWN]
        for values in [[trial.settings[name] for name in names]]
    ]
    say()
    print_table(make_console(), ["", "score", *names], rows)
    best = [part for name in names for part in (f"--{name}", str(found[0].settings[name]))]
    say(f"\nBest: {shlex.join(best)}")
    say(f"Report: {arguments.out / REPORT_NAME}")
    return 0
