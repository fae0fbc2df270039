"""What ``maskwright evaluate`` and ``maskwright compare`` ask alike: text, rows, device."""

import argparse
from collections.abc import Sequence
from typing import get_args

from maskwright.cli.flags import Parser, suggest
from maskwright.data.config import MIN_ROW_LENGTH
from maskwright.errors import InputError
from maskwright.runs.config import SuiteName


def add_text_flags(parser: Parser, text: str, row_length: str, fast: str) -> None:
    """Adds ``--data``, ``--fast``, ``--seq-length`` and ``--device``.

    Args:
        text, row_length: what is taken without the flag.
        fast: how much of the text ``--fast`` takes.
    """
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="PATH",
        help=f"a prepared folder or its URL, or text files [{text}]",
    )
    parser.add_argument("--fast", action="store_true", help=fast)
    parser.add_argument(
        "--seq-length", type=int, metavar="N", help=f"slots of a row [{row_length}]"
    )
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")


def check_text_flags(arguments: argparse.Namespace) -> None:
    """Lets pass rows that can hold something.

    Raises:
        InputError: they are too short.
    """
    length = arguments.seq_length
    if length is not None and length < MIN_ROW_LENGTH:
        raise InputError(f"--seq-length = {length} must be at least {MIN_ROW_LENGTH}")


def check_suites(names: Sequence[str]) -> tuple[str, ...]:
    """The names of suites, each once.

    Raises:
        InputError: none, or one that does not exist.
    """
    valid = get_args(SuiteName)
    for name in names:
        if name not in valid:
            raise suggest("suite", name, valid, f"choose from {', '.join(valid)}")
    if not names:
        raise InputError(f"no suite given: choose from {', '.join(valid)}")
    return tuple(dict.fromkeys(names))
