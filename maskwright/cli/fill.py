"""``maskwright fill``: the words that a trained model predicts for masks."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import (
    Sentence,
    add_arguments,
    read_filled_sentences,
    report_unanswered,
)
from maskwright.cli.tables import make_console
from maskwright.console import say, say_json
from maskwright.errors import InputError
from maskwright.formatting import show_share
from maskwright.runs.find_model import find_model_folder
from maskwright.tokenizer.token_text import TokenText

if TYPE_CHECKING:
    from maskwright.inference.fill_mask import FillMask, FillResult

_EPILOG = """A target is scored as the token that its place needs: where there is a blank before the
mask, or nothing, the token with the blank (▁good), if there is one; inside a word the token without
it. The token that is printed is the one that was scored.

A blank line, or one that cannot be filled, has an empty line, or with --json a row without masks.

examples:
  maskwright fill runs/NAME "The larvae are black and [MASK] on snails."
  maskwright fill runs/NAME "Paris is the [MASK] of [MASK]." --top-k 3
  maskwright fill runs/NAME "It was a [MASK] day." --targets good bad
  maskwright fill runs/NAME --file sentences.txt --json
  maskwright fill runs/NAME "Mask any word of this sentence." --random
"""
_TOP_K = 5


def build_parser() -> Parser:
    """Return the parser of ``maskwright fill``."""
    parser = Parser("fill", "Predict masked words.", _EPILOG)
    add_arguments(parser, "sentences with [MASK], or what the model calls it, such as <mask>")
    parser.add_argument("--top-k", type=int, help=f"predictions a mask [{_TOP_K}]")
    parser.add_argument(
        "--targets", nargs="+", metavar="WORD", help="only these words, separated by spaces"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a sentence")
    parser.add_argument(
        "--random", action="store_true", help="mask a random word of each sentence and compare"
    )
    parser.add_argument("--seed", type=int, help="of --random [0]")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    if arguments.top_k is not None and arguments.top_k < 1:
        raise InputError(f"--top-k = {arguments.top_k} must be at least 1")
    if arguments.random and (arguments.json or arguments.top_k or arguments.targets):
        raise InputError("--random shows one word; it takes no --json, --top-k or --targets")
    if arguments.seed is not None and not arguments.random:
        raise InputError("--seed has no effect without --random. Remove it.")
    sentences, given = tee(read_filled_sentences(arguments, "there is no sentence to fill"))
    fill = maskwright.FillMask(find_model_folder(arguments.folder), arguments.device)
    num_bad = 0
    for sentence, answer in zip(sentences, _answer(fill, given, arguments), strict=True):
        if isinstance(answer, InputError):  # the other sentences have nothing to do with it
            num_bad += report_unanswered(sentence, answer, {"masks": []}, arguments.json)
        elif isinstance(answer, list):
            say("\n".join(answer))
        elif arguments.json:
            say_json(answer.to_json())
        else:
            _show_result(answer, TokenText(fill.tokenizer))
    return 2 if num_bad else 0


def _answer(
    fill: "FillMask", sentences: Iterable[Sentence], arguments: Namespace
) -> "Iterator[FillResult | InputError | list[str]]":
    """Yield the predictions for each sentence, its error, or the lines of a random word."""
    texts = (sentence.text for sentence in sentences)
    if not arguments.random:
        yield from fill.stream(texts, arguments.top_k or _TOP_K, arguments.targets)
    for text in texts:
        try:
            yield fill.describe_random(text, arguments.seed or 0)
        except InputError as error:
            yield error


def _show_result(result: "FillResult", pieces: TokenText) -> None:
    console = make_console()
    console.print(f"[bold]{escape(result.text)}")
    for number, predictions in enumerate(result.masks, start=1):
        if len(result.masks) > 1:
            console.print(f"  mask {number}")
        for prediction in predictions:
            bar = "█" * round(30 * prediction.score)
            token = escape(pieces.show(prediction.token_id))
            console.print(f"  {show_share(prediction.score, 1):>6}  {token:<16} [dim]{bar}")
