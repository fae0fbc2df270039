"""``maskwright export``: the model for other libraries, compared there before it appears."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.cli.flags import Parser
from maskwright.console import Console
from maskwright.errors import CheckpointError, InputError
from maskwright.finetuning.conll import has_conll_name
from maskwright.finetuning.tables import LABEL, TEXT_ROLES, list_names
from maskwright.interop.targets import TARGETS
from maskwright.preparation.locate import locate
from maskwright.runs.find_data import is_prepared
from maskwright.runs.find_model import HELP, find_model_folder
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    name_prepared,
    read_example_files,
    read_provenance,
)

if TYPE_CHECKING:
    from maskwright.interop.task_examples import ExampleFile

_EPILOG = """examples:
  maskwright export runs/NAME --to hf --out exports/NAME
  maskwright export runs/NAME --to onnx --out exports/NAME-onnx
  maskwright export runs/NAME --to onnx-int8 --out exports/NAME-int8
  maskwright export MODEL --to onnx-int8 --data data/NAME --out exports/int8
  maskwright export runs/NAME --to sentence-transformers --out exports/NAME-st
  maskwright export runs/sst2 --to onnx-int8 --out exports/sst2-int8
  maskwright export MODEL --to onnx --data reviews.csv --out exports/reviews

What is written is loaded with the other library and compared on real sentences, a fine-tuned model
on the examples that it was scored on; DIR appears only if the outputs are the same.
"""


def build_parser() -> Parser:
    """The command line of ``maskwright export``."""
    parser = Parser("export", "Write a model for other libraries.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--to", choices=TARGETS, required=True, help="the target")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--data",
        help="text to compare on [that of the run]: a prepared folder, or its URL, with held-out "
        "text; of a fine-tuned model a file of labeled examples, in the columns that it was "
        "fine-tuned on",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    run, model = Path(arguments.folder), find_model_folder(arguments.folder)
    from maskwright.model_folder.classifier_folder import is_classifier

    if not is_classifier(model):
        data = None if arguments.data is None else locate(arguments.data)
        if data is not None and not is_prepared(data):
            raise InputError(f"--data = {data} is not a folder that maskwright prepare wrote")
        options: dict[str, Any] = {"data": data or find_data(run)}
    else:
        asked = read_example_files(run) or read_example_files(model.parent)
        options = {"examples": find_examples(asked, arguments.data)}
    from maskwright.interop.export import export_model

    report = export_model(model, arguments.to, arguments.out, **options)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in report.describe():
        console.print(line)
    return 0


def find_examples(asked: Mapping[str, Any], path: str | None) -> "ExampleFile | None":
    """Return the examples of a fine-tuned model's task: `path`, or those that it was scored on.

    Args:
        asked: the files of its run.

    Returns:
        None if `path` is None and none of the run's files is still there.

    Raises:
        InputError: there is no file at `path`.
    """
    from maskwright.interop.task_examples import ExampleFile

    given = [path] if path else [asked.get(name) for name in ("test", "valid", "train")]
    found = next((Path(name) for name in given if name and Path(name).is_file()), None)
    if found is None and path:
        raise InputError(f"--data = {path} is not a file of labeled examples")
    if found is None:
        return None
    if not asked and not has_conll_name(found):  # a model folder without its run
        names = list_names(found)
        columns = {role: role for role in (*TEXT_ROLES, LABEL) if role in names}
        return ExampleFile(found, columns)
    return ExampleFile(found, asked.get("columns") or {}, asked.get("has_header"))


def find_data(run: Path) -> Path | None:
    """The prepared data of a run directory, if this is one and its data is still there.

    Of several folders the first: it is to see that outputs are equal, on any text.
    """
    if not (run / CONFIG_NAME).is_file():
        return None
    try:
        data = next(iter(name_prepared(read_provenance(run)).values()))
    except CheckpointError:
        return None
    return data if is_prepared(data) else None
