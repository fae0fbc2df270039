"""``maskwright finetune``: a model folder and labelled text to a model that answers."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from maskwright.commands.flags import Parser, add_config_flags, config_values
from maskwright.commands.model_folder import HELP, find_model_folder
from maskwright.config import from_mapping
from maskwright.errors import InputError
from maskwright.finetune.config import FinetuneConfig, Task
from maskwright.finetune.presets import GLUE
from maskwright.finetune.tables import parse_columns

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

Without --valid a tenth of the examples is held out (--valid-share). Baselines without any encoder
are printed beside; with --control a random encoder of the same shape as well.
"""
TASKS = ("classification", "multilabel", "regression", "tokens", "embedding")
_DEFAULT_COLUMNS = {"sentence1": "sentence1", "label": "label"}


def build_parser() -> Parser:
    """The command line of ``maskwright finetune``."""
    parser = Parser("finetune", "Fine-tune a model on labelled text.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--task", choices=TASKS, help="what is to be learned")
    parser.add_argument("--preset", choices=sorted(GLUE), help="task, columns and metrics of GLUE")
    parser.add_argument("--train", type=Path, required=True, help="labelled examples")
    parser.add_argument("--valid", type=Path, help="examples to score on [a share of --train]")
    parser.add_argument(
        "--valid-share", type=float, default=0.1, help="held out where there is no --valid [0.1]"
    )
    parser.add_argument("--out", type=Path, required=True, help="the run directory")
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="ROLE=COLUMN",
        help="names or positions from 0: sentence1, sentence2, label; of tokens: word, tag",
    )
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether TSV and CSV begin with names [if any column is called by name]",
    )
    parser.add_argument("--control", action="store_true", help="score a random encoder as well")
    add_config_flags(parser, FinetuneConfig)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    config = from_mapping(FinetuneConfig, config_values(arguments))
    if (arguments.task is None) == (arguments.preset is None):
        raise InputError("give --task or --preset, one of them")
    if not 0 < arguments.valid_share < 1:
        raise InputError(f"--valid-share = {arguments.valid_share} must lie between 0 and 1")
    check_out(arguments.out)
    columns = read_roles(arguments.columns)
    folder = find_model_folder(arguments.folder)
    from maskwright.commands.finetuning import finetune_embedder, finetune_labels
    from maskwright.finetune.task import TaskFiles

    if arguments.task == "embedding":
        finetune_embedder(folder, arguments.train, columns, arguments.header, config, arguments.out)
        return 0
    task: Task = arguments.task
    metrics, header = (), arguments.header
    if arguments.preset:
        preset = GLUE[arguments.preset]
        layout = preset.find_layout(arguments.train)
        task, metrics = preset.task, preset.metrics
        columns = {**layout.columns, **parse_columns(columns)}
        header = layout.has_header if header is None else header
    else:
        defaults = {} if task == "tokens" else _DEFAULT_COLUMNS
        columns = parse_columns({**defaults, **columns})
    files = TaskFiles(
        task, arguments.train, arguments.valid, columns, header, metrics, arguments.valid_share
    )
    finetune_labels(folder, files, config, arguments.out, arguments.control)
    return 0


def read_roles(given: Sequence[str]) -> dict[str, str]:
    """``sentence1=0`` as a mapping.

    Raises:
        InputError: something else, or a role that nothing has.
    """
    roles = ("sentence1", "sentence2", "label", "word", "tag")
    columns: dict[str, str] = {}
    for one in given:
        role, found, column = one.partition("=")
        if not found or not column or role not in roles:
            raise InputError(f"--columns {one} is not ROLE=COLUMN; roles are {', '.join(roles)}")
        columns[role] = column
    return columns


def check_out(out: Path) -> None:
    """Refuses a folder that holds something.

    Raises:
        InputError: it does, or it is a file.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out = {out} exists already. Choose another folder, or remove it.")
