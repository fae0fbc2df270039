"""``maskwright export``: the model for other libraries, compared there before it appears."""

from collections.abc import Sequence
from pathlib import Path

from maskwright.commands.flags import Parser
from maskwright.commands.model_folder import HELP, find_model_folder
from maskwright.commands.prepared import is_prepared
from maskwright.commands.run_folder import CONFIG_NAME, name_prepared, read_provenance
from maskwright.console import Console
from maskwright.errors import CheckpointError, InputError
from maskwright.interop.targets import TARGETS
from maskwright.preparation.locate import locate

_EPILOG = """examples:
  maskwright export runs/NAME --to hf --out exports/NAME
  maskwright export runs/NAME --to onnx --out exports/NAME-onnx
  maskwright export runs/NAME --to onnx-int8 --out exports/NAME-int8
  maskwright export MODEL --to onnx-int8 --data data/NAME --out exports/int8
  maskwright export runs/NAME --to sentence-transformers --out exports/NAME-st

What is written is loaded with the other library and compared on real sentences; DIR appears only
if the outputs are the same.
"""


def build_parser() -> Parser:
    """The command line of ``maskwright export``."""
    parser = Parser("export", "Write a model for other libraries.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--to", choices=TARGETS, required=True, help="the target")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--data",
        help="prepared folder, or its URL, with held-out text to compare on; of a run its own is "
        "found",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    data = None if arguments.data is None else locate(arguments.data)
    if data is not None and not is_prepared(data):
        raise InputError(f"--data = {data} is not a folder that maskwright prepare wrote")
    model = find_model_folder(arguments.folder)
    from maskwright.interop.export import export_model

    report = export_model(
        model, arguments.to, arguments.out, data or find_data(Path(arguments.folder))
    )
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for line in report.describe():
        console.print(line)
    return 0


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
