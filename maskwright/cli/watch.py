"""``maskwright watch``: follow a run that another process trains."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser

_EPILOG = """examples:
  maskwright watch runs/NAME
  maskwright watch runs/NAME --once     show it as it is and stop
"""


def build_parser() -> Parser:
    """Return the command line of ``maskwright watch``."""
    parser = Parser("watch", "Follow a run.", _EPILOG)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--once", action="store_true", help="show it as it is and stop")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    maskwright.watch(arguments.run, once=arguments.once)
    return 0
