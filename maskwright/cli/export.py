"""``maskwright export``: writes a model for another library and prints how it was compared."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.console import say
from maskwright.interop.targets import INT8_DEFAULTS, TARGETS
from maskwright.runs.find_model import HELP

_EPILOG = """examples:
  maskwright export runs/NAME --to hf --out exports/NAME
  maskwright export runs/NAME --to onnx --out exports/NAME-onnx
  maskwright export runs/NAME --to onnx-int8 --out exports/NAME-int8
  maskwright export MODEL --to onnx-int8 --data data/NAME --out exports/int8
  maskwright export runs/NAME --to onnx-int8 --calibrate data/NAME --out exports/NAME-static
  maskwright export runs/NAME --to sentence-transformers --out exports/NAME-st
  maskwright export runs/NAME --to gguf --out exports/NAME-gguf
  maskwright export runs/NAME --to transformers-js --out exports/NAME-page
  maskwright export runs/sst2 --to onnx-int8 --out exports/sst2-int8
  maskwright export MODEL --to onnx --data reviews.csv --out exports/reviews

What is written is loaded with the other library and compared on real sentences, a fine-tuned model
on the examples that it was scored on; DIR appears only if the outputs are the same.
"""


def build_parser() -> Parser:
    """Return the command line of ``maskwright export``."""
    parser = Parser("export", "Write a model for other libraries.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help="the target")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--data",
        help="text to compare on [that of the run]: a prepared folder, or its URL, with held-out "
        "text; of a fine-tuned model a file of labeled examples, in the columns that it was "
        "fine-tuned on",
    )
    parser.add_argument(
        "--calibrate",
        metavar="TEXT",
        help="make onnx-int8 static, with the ranges that numbers have in this text: a prepared "
        "folder or a text file; of a fine-tuned model a file as for --data [dynamic]",
    )
    most = INT8_DEFAULTS.max_loss
    loss = f"write no onnx-int8 that loses more accuracy (or score of the task) [{most}]"
    parser.add_argument("--max-loss", type=float, default=most, metavar="LOSS", help=loss)
    return parser


def main(argv: Sequence[str]) -> int:
    given = vars(build_parser().parse(argv))  # --help comes before the import of torch
    result = maskwright.export(**given)
    for line in result.describe():
        say(line)
    return 0
