"""``maskwright fill``: what a trained model puts in the place of hidden words."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from maskwright.commands.flags import Parser, read_lines
from maskwright.commands.model_folder import HELP, find_model_folder
from maskwright.errors import InputError

_EPILOG = """examples:
  maskwright fill runs/NAME "The larvae are black and [MASK] on snails."
  maskwright fill runs/NAME "Paris is the [MASK] of [MASK]." --top-k 3
  maskwright fill runs/NAME "It was a [MASK] day." --targets good,bad
  maskwright fill runs/NAME --file sentences.txt --json
  maskwright fill runs/NAME "Hide any word of this sentence." --random
"""

_TOP_K = 5


def build_parser() -> Parser:
    """The command line of ``maskwright fill``."""
    parser = Parser("fill", "Predict hidden words.", _EPILOG)
    parser.add_argument("folder", type=Path, help=HELP)
    parser.add_argument("text", nargs="*", help="sentences with [MASK]; none, or -: standard input")
    parser.add_argument("--file", type=Path, help="read sentences from a file, one a line")
    parser.add_argument("--top-k", type=int, help=f"predictions a mask [{_TOP_K}]")
    parser.add_argument("--targets", help="only these words, separated by commas")
    parser.add_argument("--json", action="store_true", help="one JSON object a sentence")
    parser.add_argument(
        "--random", action="store_true", help="hide a random word of each sentence and compare"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --random [0]")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    if arguments.top_k is not None and arguments.top_k < 1:
        raise InputError(f"--top-k = {arguments.top_k} must be at least 1")
    if arguments.random and (arguments.json or arguments.top_k or arguments.targets):
        raise InputError("--random shows one hidden word; it takes no --json, --top-k, --targets")
    texts = _read_texts(arguments.file, arguments.text)
    from maskwright.inference.fill_mask import FillMask

    fill = FillMask(find_model_folder(arguments.folder))
    if arguments.random:
        for text in texts:
            print("\n".join(fill.describe_random(text, arguments.seed)))
        return 0
    targets = arguments.targets.split(",") if arguments.targets else None
    results = fill(texts, top_k=arguments.top_k or _TOP_K, targets=targets)
    for result in results:
        if arguments.json:
            print(json.dumps(result.to_json(), ensure_ascii=False))
        else:
            _show(result.text, result.masks)
    return 0


def _read_texts(file: Path | None, texts: Sequence[str]) -> list[str]:
    if file is None:
        lines = read_lines(texts)
    elif texts:
        raise InputError("give sentences or --file, not both")
    else:
        try:
            lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} cannot be read: {error}") from None
    if not lines:
        raise InputError("there is no sentence to fill")
    return lines


def _show(text: str, masks: Sequence[Sequence]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(text)}")
    for number, predictions in enumerate(masks, start=1):
        if len(masks) > 1:
            console.print(f"  mask {number}")
        for prediction in predictions:
            bar = "█" * round(30 * prediction.score)
            console.print(f"  {prediction.score:6.1%}  {escape(prediction.token):<16} [dim]{bar}")
