"""``maskwright plan``: the run that hours on GPUs pay for, and the command that starts it."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.console import say

_EPILOG = """examples:
  maskwright plan --device 8xH100 --hours 24 corpus/
  maskwright plan --device RTX4090 --tokens 2e9               (a text that is not here)
  maskwright plan --device 16xH100 --hours 48 --size 1024x28 data/NAME --sbatch train.sh
"""


def build_parser() -> Parser:
    """Return the command line of ``maskwright plan``."""
    parser = Parser("plan", "Plan a run on GPUs that need not be here.", _EPILOG)
    parser.add_argument("text", nargs="*", help="text or prepared data, as of pretrain")
    parser.add_argument("--device", required=True, metavar="NxNAME", help="the GPUs: 8xH100")
    parser.add_argument("--hours", type=float, help="budget [20 epochs of the text]")
    parser.add_argument("--tokens", type=float, help="tokens of a text that is not here, 10e9")
    size = "WIDTHxLAYERS, 768x22 [the largest that the budget pays for]"
    parser.add_argument("--size", help=size)
    parser.add_argument("--sbatch", type=Path, metavar="FILE", help="write a batch file for Slurm")
    folder = "where prepared data is [data]"
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help=folder)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    for line in maskwright.plan(**vars(arguments)).describe():
        say(line)
    return 0
