"""Command lines: strict, with the nearest valid flag in the message; every field is a flag."""

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskwright.config import FieldInfo, Plain, describe_type, fields_of, merge, nested
from maskwright.errors import InputError


def suggest(kind: str, name: str, valid: Sequence[str], remedy: str) -> InputError:
    """The error for a name that does not exist, with the nearest one that does."""
    close = difflib.get_close_matches(name, valid, n=1)
    hint = f"did you mean {close[0]}?" if close else f"{remedy}."
    return InputError(f"unknown {kind} {name}; {hint}")


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are ours: one line, exit code 2, no usage dump."""

    def __init__(self, command: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=f"maskwright {command}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> Any:
        raise InputError(f"{message}; see {self.prog} --help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses all of `argv`.

        Raises:
            InputError: an unknown flag (naming the nearest), a missing value.
        """
        known, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            flag = unknown[0].partition("=")[0]
            raise suggest(
                "flag" if flag.startswith("-") else "argument",
                flag,
                self._flags(),
                f"{self.prog} --help lists them",
            )
        return known

    def _flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]


def add_config_flags(parser: Parser, config: type, skip: Sequence[str] = ()) -> None:
    """Adds ``--section.field VALUE`` for every field of a configuration tree."""
    groups: dict[str, Any] = {}
    for info in fields_of(config):
        section = info.name.partition(".")[0] if "." in info.name else "run"
        if section in skip or info.name in skip:
            continue
        if section not in groups:
            groups[section] = parser.add_argument_group(f"{section} (configuration)")
        groups[section].add_argument(
            f"--{info.name}",
            dest=f"config:{info.name}",
            metavar=describe_type(info.annotation).upper().replace(" ", "_"),
            default=argparse.SUPPRESS,
            help=_describe(info),
        )


def folder_name(given: str) -> str:
    """The type of a flag that names a folder inside another one, and must not lead out of it."""
    if given in ("", ".", "..") or Path(given).name != given:
        raise argparse.ArgumentTypeError(f"{given} must be a name without a slash")
    return given


def config_values(arguments: argparse.Namespace) -> Plain:
    """The configuration flags that were given, as nested values."""
    values: Plain = {}
    for name, value in vars(arguments).items():
        if name.startswith("config:"):
            values = merge(values, nested(name.removeprefix("config:"), value))
    return values


def _describe(info: FieldInfo) -> str:
    default = "none" if info.default in (None, ()) else info.default
    return f"{info.help} [{default}]".replace("%", "%%")
