"""``maskwright report`` and ``watch``: runs as a page, and followed."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.console import say
from maskwright.errors import InputError, make_line
from maskwright.files import check_new_file
from maskwright.formatting import shorten_names
from maskwright.report.facts import gather_facts
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
