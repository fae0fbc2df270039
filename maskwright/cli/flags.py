"""Command lines: strict, with the nearest valid flag in the message; every field is a flag."""

import argparse
import os
import re
import sys
import types
from collections.abc import Collection, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

from maskwright.config import Plain, describe_type, fields_of, merge, nested
from maskwright.console import say
from maskwright.errors import InputError, suggest

_CONFIG = "config:"  # begins the names of arguments that are configuration fields


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
        self.rare: dict[argparse.Action, str | None] = {}  # help that only --help-all shows

    def _summarize(self) -> str:
        """Return the usage line: a list of all flags would be longer than their help."""
        shown = {None: "{}", "*": "[{} ...]", "+": "{} ...", "?": "[{}]"}
        positionals = [action for action in self._actions if not action.option_strings]
        names = [shown[action.nargs].format(action.dest) for action in positionals]
        return " ".join([self.prog, *names, "[options]"]).replace("%", "%%")

    def error(self, message: str) -> Any:
        raise InputError(f"{message}; see {self.prog} --help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of `argv`.

        Raise InputError for an unknown flag (naming the nearest) or a missing value.
        """
        self.usage = self._summarize()
        known, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            flag = unknown[0].partition("=")[0]
            kind = "flag" if flag.startswith("-") else "argument"
            valid = [name for action in self._actions for name in action.option_strings]
            raise suggest(kind, flag, valid, f"{self.prog} --help lists them")
        return known


class _HelpAll(argparse.Action):
    """``--help-all``: print the help with every flag, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        for action, text in parser.rare.items():
            action.help = text
        parser.print_help()
        parser.exit()


def add_config_flags(
    parser: Parser, config: Any, skip: Collection[str] = (), usual: Collection[str] | None = None
) -> None:
    """Add ``--section.field VALUE`` for every field of a configuration tree.

    Args:
        config: the tree; its values are shown as defaults.
        skip: fields, or whole sections, that get no flag.
        usual: fields that ``--help`` shows; the others are left to ``--help-all``. None: all.
    """
    hidden = argparse.SUPPRESS
    if usual is not None:
        text = "show every flag and exit"
        parser.add_argument("--help-all", action=_HelpAll, nargs=0, dest=hidden, help=text)
    groups: dict[str, Any] = {}
    for info in fields_of(type(config)):
        section = info.name.partition(".")[0] if "." in info.name else "run"
        if section in skip or info.name in skip:
            continue
        if section not in groups:
            groups[section] = parser.add_argument_group(f"{section} (configuration)")
        action = groups[section].add_argument(
            f"--{info.name}",
            dest=f"{_CONFIG}{info.name}",
            nargs="+" if info.has_commas else None,
            metavar=_name_value(info.annotation).removesuffix(",..." * info.has_commas),
            default=argparse.SUPPRESS,
            help=_describe(info.help, attrgetter(info.name)(config)),
        )
        if usual is not None and info.name not in usual:
            parser.rare[action], action.help = action.help, hidden


def add_private_flag(parser: Parser) -> argparse.Action:
    """Add ``--private``, a field of the configuration; return it."""
    return parser.add_argument(
        "--private",
        dest=f"{_CONFIG}private",
        action="store_const",
        const=True,
        default=argparse.SUPPRESS,
        help="keep no sample of the text in any file of the run, nor in the output",
    )


def say_loading() -> None:
    """Print that torch is being loaded, which takes seconds, unless it is loaded."""
    if "torch" not in sys.modules and os.environ.get("RANK", "0") == "0":
        say("loading torch", flush=True)


def folder_name(given: str) -> str:
    """Check a flag that names a folder inside another one and must not lead out of it."""
    if given in ("", ".", "..") or Path(given).name != given:
        raise argparse.ArgumentTypeError(f"{given} must be a name without a slash")
    return given


def config_values(arguments: argparse.Namespace) -> Plain:
    """Return the configuration flags that were given, as nested values."""
    values: Plain = {}
    for name, value in vars(arguments).items():
        if name.startswith(_CONFIG):
            given = "none" if value == ["none"] else value  # of `has_commas`, which are lists
            values = merge(values, nested(name.removeprefix(_CONFIG), given))
    return values


def all_values(arguments: argparse.Namespace) -> Plain:
    """Return the flags as arguments of the command's function, with `config_values` nested."""
    others = {name: one for name, one in vars(arguments).items() if not name.startswith(_CONFIG)}
    return {**others, **config_values(arguments)}


def _name_value(annotation: Any) -> str:
    """Return how the help shows a value: ``INT``, or choices, spelled as they are accepted."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return "|".join(_name_value(part) for part in parts if part is not types.NoneType)
    if origin is tuple:
        return f"{_name_value(parts[0])},..."
    return describe_type(annotation) if origin is Literal else annotation.__name__.upper()


def _describe(text: str, default: Any) -> str:
    if isinstance(default, tuple):
        default = ",".join(map(str, cast(tuple[Any, ...], default)))
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"{text} [{'none' if shown in (None, '') else shown}]".replace("%", "%%")


def add_table_flags(parser: Parser, columns: str) -> None:
    """Add ``--columns`` and ``--header``; `columns` is the help of the former."""
    parser.add_argument("--columns", nargs="+", default=[], metavar="ROLE=COLUMN", help=columns)
    header = "whether TSV and CSV begin with names [if any column is called by name]"
    parser.add_argument("--header", action=argparse.BooleanOptionalAction, help=header)


def read_roles(given: Sequence[str]) -> dict[str, str] | None:
    """Return the columns of ``--columns ROLE=COLUMN …`` by role, or None if there are none; commas
    may separate them.

    Raise InputError if one is not of this form, or a role is given twice.
    """
    columns: dict[str, str] = {}
    for one in [part for each in given for part in re.split(r",\s*(?=\w+=)|,$", each) if part]:
        role, equals, column = one.partition("=")
        if not (role and equals and column):
            rule = f"--columns {one} is not ROLE=COLUMN"
            raise InputError(f"{rule}, as in --columns text=note label=department")
        if role in columns:
            raise InputError(f"--columns {one}: {role} = {columns[role]} already. Give it once.")
        columns[role] = column
    return columns or None
