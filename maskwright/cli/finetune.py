"""``maskwright finetune``: a model folder and labelled text to a model that answers."""

import argparse
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from maskwright.cli.flags import (
    Arguments,
    Parser,
    add_config_flags,
    check_end,
    config_values,
)
from maskwright.config import from_mapping
from maskwright.console import tell
from maskwright.errors import InputError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.files import ExampleFiles, TaskFiles
from maskwright.finetuning.folder import (
    Asked,
    TerminatedError,
    describe_stop,
    raising_on_sigterm,
    read_resumed,
)
from maskwright.finetuning.layout import find_roles
from maskwright.finetuning.presets import GLUE, GlueTask
from maskwright.finetuning.tables import Column, list_names, parse_columns
from maskwright.runs.find_model import HELP, find_model_folder
from maskwright.runs.run_directory import MODEL_NAME

_EPILOG = """tasks:
  classification   one label of several, of a text or of a pair (columns sentence1, sentence2)
  multilabel       any number of labels: a|b, a,b or a JSON list
  regression       a number
  tokens           a tag for each word, in CoNLL columns (IO, IOB, BIO, BIOES)
  embedding        vectors in which the two texts of each pair are near

examples:
  maskwright finetune runs/NAME --preset sst2 --train SST-2/train.tsv --valid SST-2/dev.tsv \\
      --out runs/sst2
  maskwright finetune runs/NAME --task classification --train mails.csv --out runs/mails \\
      --columns sentence1=body label=folder --seeds 5
  maskwright finetune runs/NAME --task tokens --train wikigold.conll --out runs/ner
  maskwright finetune runs/NAME --task embedding --train pairs.tsv --out runs/pairs \\
      --columns sentence1=0 sentence2=1
  maskwright finetune --resume runs/mails

Without --valid a tenth of the examples is held out (--valid-share). Baselines without any encoder
are printed beside; with --control a random encoder of the same shape as well.
A run that was stopped or killed goes on when the same command is given again, or with --resume:
finished seeds are kept.
"""
_TEXT_ROLES = ("sentence1", "sentence2", "label")
ROLES = {
    "classification": _TEXT_ROLES,
    "multilabel": _TEXT_ROLES,
    "regression": _TEXT_ROLES,
    "tokens": ("word", "tag"),
    "embedding": ("sentence1", "sentence2"),
}
# What pairs without labels have no use for, and what it would have to be.
_NOTHING_TO_PAIRS: dict[str, object] = {
    "seeds": 1,
    "metric": None,
    "class_weights": False,
    "pooling": None,
}


def build_parser() -> Parser:
    """The command line of ``maskwright finetune``."""
    parser = Parser("finetune", "Fine-tune a model on labelled text.", _EPILOG)
    parser.add_argument("folder", nargs="?", help=HELP, metavar="MODEL")
    parser.add_argument("--task", choices=tuple(ROLES), help="what is to be learned")
    parser.add_argument("--preset", choices=sorted(GLUE), help="task, columns and metrics of GLUE")
    parser.add_argument("--train", type=Path, help="labelled examples")
    parser.add_argument(
        "--valid", type=Path, help="examples that choose the weights [some of --train]"
    )
    parser.add_argument(
        "--test", type=Path, help="examples to score the chosen weights on, once [none]"
    )
    parser.add_argument(
        "--valid-share", type=float, default=0.1, help="held out where there is no --valid [0.1]"
    )
    parser.add_argument("--out", type=Path, help="the run directory")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on with an unfinished run directory, without any other flag",
    )
    add_table_flags(
        parser,
        "names or positions from 0: sentence1, sentence2, label; of tokens: word, tag [usual names "
        "of the table, such as text and category]",
    )
    parser.add_argument("--control", action="store_true", help="score a random encoder as well")
    add_config_flags(parser, FinetuneConfig)
    return parser


def add_table_flags(parser: Parser, columns: str) -> None:
    """Adds ``--columns`` and ``--header``; `columns` is the help of the first."""
    parser.add_argument("--columns", nargs="+", default=[], metavar="ROLE=COLUMN", help=columns)
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether TSV and CSV begin with names [if any column is called by name]",
    )


def finetune(
    folder: str | Path,
    *,
    train: str | Path,
    out: str | Path,
    task: str | None = None,
    preset: str | None = None,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    valid_share: float = 0.1,
    columns: Mapping[str, str | int] | None = None,
    header: bool | None = None,
    control: bool = False,
    **settings: Any,
) -> Path:
    """Fine-tune a model on labeled text; the Python twin of ``maskwright finetune``::

        folder = finetune("runs/mine", task="classification", train="mails.csv", out="runs/mails",
                          columns={"sentence1": "body", "label": "folder"}, epochs=3)
        [answer] = Predictor(folder)(["Where is my parcel?"])

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        train: labeled examples: a table, or CoNLL columns for the task ``tokens``.
        out: the run directory. Scores are in its ``results.json``.
        task: ``classification``, ``multilabel``, ``regression``, ``tokens`` or ``embedding``.
        preset: instead of `task`, one of GLUE's: task, columns and metrics.
        valid: examples that choose the weights.
        valid_share: the share of `train` that does, without `valid`.
        test: examples on which the chosen weights are scored once.
        columns: names or positions (from 0) of columns by role: sentence1, sentence2, label; word,
            tag.
        header: whether tables begin with names; None: find out.
        control: scores a random encoder of the same shape as well.
        settings: ``epochs``, ``learning_rate``, ``seeds``, …: see ``maskwright finetune --help``.

    Returns:
        The folder of the fine-tuned model, ``out/model``.

    Raises:
        MaskwrightError: anything wrong with the input, as one line; or SIGTERM came before the
            end.
        KeyboardInterrupt: Ctrl-C came before the end.
    """
    parser = build_parser()
    roles = [f"{role}={column}" for role, column in (columns or {}).items()]
    files = {"train": train, "valid": valid, "test": test, "out": out}
    table = {"valid_share": valid_share, "columns": roles, "header": header}
    options = {"task": task, "preset": preset, "control": control}
    check_end(main(parser.fill(settings, folder=folder, **files, **table, **options)), out)
    return Path(out) / MODEL_NAME


def main(argv: Arguments) -> int:
    arguments = build_parser().parse(argv)
    if arguments.resume is not None:
        _check_alone(arguments)
        out, asked = arguments.resume, read_resumed(arguments.resume)
    else:
        out, asked = arguments.out, _read_asked(arguments)
    try:
        with raising_on_sigterm():
            _run(asked, out)
    except (TerminatedError, KeyboardInterrupt) as stop:
        number = signal.SIGTERM if isinstance(stop, TerminatedError) else signal.SIGINT
        tell(describe_stop(out, number))
        return 128 + number
    return 0


def _run(asked: Asked, out: Path) -> None:
    if isinstance(asked.files, TaskFiles):
        from maskwright.finetuning.run import finetune_labels

        finetune_labels(asked.model, asked.files, asked.config, out, asked.control)
    else:
        from maskwright.finetuning.contrastive import finetune_embedder

        finetune_embedder(asked.model, asked.files, asked.config, out)


def _check_alone(arguments: argparse.Namespace) -> None:
    """Raise InputError if anything is given beside ``--resume``."""
    nothing = vars(build_parser().parse(["--resume", str(arguments.resume)]))
    for name, value in vars(arguments).items():
        if value != nothing.get(name):
            option, flag = name.removeprefix("config:"), name.replace("_", "-")
            given = "MODEL" if name == "folder" else f"--{option if option != name else flag}"
            raise InputError(f"--resume continues a run as it is. Remove {given}.")


def _read_asked(arguments: argparse.Namespace) -> Asked:
    """Return what the flags ask for."""
    needed = {"MODEL": arguments.folder, "--train": arguments.train, "--out": arguments.out}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise InputError(f"give {' and '.join(missing)}, or --resume RUN alone")
    config = from_mapping(FinetuneConfig, config_values(arguments))
    if (arguments.task is None) == (arguments.preset is None):
        raise InputError("give --task or --preset, one of them")
    if not 0 < arguments.valid_share < 1:
        raise InputError(f"--valid-share = {arguments.valid_share} must lie between 0 and 1")
    preset = GLUE.get(arguments.preset)
    task = preset.task if preset else arguments.task
    columns = read_roles(arguments.columns, ROLES[task])
    if task == "regression" and config.class_weights:
        raise InputError("--class_weights is nothing to a number: leave it out")
    if arguments.task == "embedding":
        _check_embedding(arguments, config)
    folder = find_model_folder(arguments.folder)
    if arguments.task == "embedding":
        found = _find_columns(arguments, task, columns)
        files = ExampleFiles(**_describe_files(arguments, found))
    else:
        files = _find_labelled(arguments, preset, columns)
    return Asked(folder, files, config, arguments.control)


def _check_embedding(arguments: argparse.Namespace, config: FinetuneConfig) -> None:
    """Refuses what has no meaning for pairs without labels, rather than pass over it."""
    asked = [name for name, value in _NOTHING_TO_PAIRS.items() if getattr(config, name) != value]
    asked += ["control"] * arguments.control + ["test"] * (arguments.test is not None)
    if asked:
        raise InputError(f"--{asked[0]} is nothing to --task embedding: leave it out")


def _find_columns(
    arguments: argparse.Namespace, task: str, given: Mapping[str, str]
) -> dict[str, Column]:
    """The columns that are named, and the others by the usual names that the table has."""
    if task == "tokens":
        return parse_columns(given)
    names = list_names(arguments.train)
    found = find_roles(names, ROLES[task], given, str(arguments.train))
    if task == "embedding":
        found = {"sentence2": "sentence2", **found} if "sentence2" not in given else found
    return {**found, **parse_columns(given)}


def _describe_files(arguments: argparse.Namespace, columns: Mapping[str, Column]) -> dict[str, Any]:
    return {
        "train": arguments.train,
        "valid": arguments.valid,
        "test": arguments.test,
        "columns": columns,
        "has_header": arguments.header,
        "valid_share": arguments.valid_share,
    }


def _find_labelled(
    arguments: argparse.Namespace, preset: GlueTask | None, columns: dict[str, str]
) -> TaskFiles:
    """The files of a task, in the layout of its preset if there is one."""
    if preset is None:
        found = _find_columns(arguments, arguments.task, columns)
        files = _describe_files(arguments, found)
        return TaskFiles(task=arguments.task, **files)
    layout = preset.find_layout(arguments.train)
    files = _describe_files(arguments, {**layout.columns, **parse_columns(columns)})
    if arguments.header is None:
        files["has_header"] = layout.has_header
    # Columns of one's own say that the file is one's own, too, and its short rows are mistakes.
    skips_short = not columns
    return TaskFiles(task=preset.task, metrics=preset.metrics, skips_short=skips_short, **files)


def read_roles(given: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    """``sentence1=0`` as a mapping.

    Args:
        roles: those that the task has; words and tags lie at positions.

    Raises:
        InputError: something else, another role, or one twice.
    """
    columns: dict[str, str] = {}
    for one in given:
        role, found, column = one.partition("=")
        if not found or not column or role not in roles:
            raise InputError(f"--columns {one} is not ROLE=COLUMN; roles are {', '.join(roles)}")
        if role in ROLES["tokens"] and not column.lstrip("-").isdecimal():
            raise InputError(f"--columns {one} must be a position, from 0; -1 is the last column")
        if role in columns:
            raise InputError(f"--columns {one}: {role} = {columns[role]} already. Say it once.")
        columns[role] = column
    return columns
