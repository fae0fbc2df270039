"""``maskwright report``, ``watch`` and ``sweep``: runs as a page, followed, and searched."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.console import make_console, print_table, say
from maskwright.errors import InputError, make_line
from maskwright.files import check_new_file
from maskwright.formatting import shorten_names
from maskwright.report.facts import gather_facts
from maskwright.report.pages import NO_SCORE
from maskwright.report.run_page import write_report
from maskwright.runs.run_directory import REPORT_NAME

_REPORT_HELP = """examples:
  maskwright report runs/NAME                       writes runs/NAME/report.html
  maskwright report runs/A runs/B --out both.html   side by side
"""


def report_parser() -> Parser:
    parser = Parser("report", "Show a run as a page.", _REPORT_HELP)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories")
    parser.add_argument("--out", type=Path, help="where to [report.html in the run directory]")
    return parser


def report(argv: Sequence[str]) -> int:
    arguments = report_parser().parse(argv)
    if arguments.out is None and len(arguments.runs) > 1:
        raise InputError("several runs need --out FILE")
    if arguments.out is not None:
        check_new_file(arguments.out)
    out = arguments.out or arguments.runs[0] / REPORT_NAME
    names = [make_line(name) for name in shorten_names([str(run) for run in arguments.runs])]
    write_report(
        [gather_facts(run, name) for run, name in zip(arguments.runs, names, strict=True)], out
    )
    say(f"{out}: open it in a browser")
    return 0


_WATCH_HELP = """examples:
  maskwright watch runs/NAME
  maskwright watch runs/NAME --once     show it as it is and stop
"""


def watch_parser() -> Parser:
    parser = Parser("watch", "Follow a run.", _WATCH_HELP)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--once", action="store_true", help="show it as it is and stop")
    return parser


def watch(argv: Sequence[str]) -> int:
    arguments = watch_parser().parse(argv)
    maskwright.watch(arguments.run, once=arguments.once)
    return 0


_SWEEP_HELP = """All other arguments and flags are those of the command, and shared by all trials.

examples:
  maskwright sweep pretrain corpus/*.txt --over optim.learning_rate=1e-3..1e-1:log \\
      --over masking.rate=0.15,0.3,0.4 --trials 12 --minutes 3 --out runs/rates
  maskwright sweep finetune runs/NAME --task classification --train mails.csv --out runs/mails

Of pretrain the trial with the smallest validation loss is the best, of finetune the one with the
best validation score (the smallest, if the metric is an error). A sweep that was stopped or killed
is resumed by the same command.
"""
_SHOWN = 10


def sweep_parser() -> Parser:
    parser = Parser("sweep", "Search the settings of a command.", _SWEEP_HELP)
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


def sweep(argv: Sequence[str]) -> int:
    arguments, rest = sweep_parser().parse_known_args(argv)
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
