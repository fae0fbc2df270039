"""``maskwright sweep``: many runs of pretrain or finetune with other settings."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.tables import make_console, print_table
from maskwright.console import say
from maskwright.runs.run_directory import REPORT_NAME

_EPILOG = """All other arguments and flags are those of the command, and shared by all trials.

examples:
  maskwright sweep pretrain corpus/*.txt --over optim.learning_rate=1e-3..1e-1:log \\
      --over masking.rate=0.15,0.3,0.4 --trials 12 --minutes 3 --out runs/rates
  maskwright sweep finetune runs/NAME --task classification --train mails.csv --out runs/mails

Of pretrain the trial with the smallest validation loss is the best, of finetune the one with the
best validation score (the smallest, if the metric is an error). A sweep that was stopped or killed
is resumed by the same command.
"""
_SHOWN = 10


def build_parser() -> Parser:
    """Return the parser of ``maskwright sweep``."""
    parser = Parser("sweep", "Search the settings of a command.", _EPILOG)
    parser.add_argument("command", choices=("pretrain", "finetune"))
    over = (
        "vary a setting: FIELD=LOW..HIGH, FIELD=LOW..HIGH:log, FIELD=A,B,C; may be repeated "
        "[finetune: learning rate, epochs, layer decay]"
    )
    parser.add_argument("--over", action="append", default=[], metavar="SPACE", help=over)
    parser.add_argument("--trials", type=int, default=12, help="the most runs [12]")
    parser.add_argument("--minutes", type=float, help="budget of each run of pretrain [recipe]")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--sweep-seed", type=int, default=0, help="names the settings tried [0]")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments, rest = build_parser().parse_known_args(argv)
    found = maskwright.sweep(
        arguments.command,
        rest,
        out=arguments.out,
        over=arguments.over,
        trials=arguments.trials,
        minutes=arguments.minutes,
        seed=arguments.sweep_seed,
        report=partial(say, flush=True),
    )
    names = list(found[0].settings)
    rows = [
        [
            trial.folder.name,
            "failed" if trial.score is None else f"{trial.score:.4f}",
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
