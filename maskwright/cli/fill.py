"""``maskwright fill``: what a trained model puts in the place of hidden words."""

import argparse
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich.markup import escape

from maskwright.cli.flags import Parser
from maskwright.cli.inputs import Sentence, add_arguments, read_sentences
from maskwright.console import Console, say, say_json, tell
from maskwright.errors import InputError
from maskwright.inference.fill_mask import HiddenWord
from maskwright.inference.text_model import split_blocks
from maskwright.runs.find_model import find_model_folder

if TYPE_CHECKING:
    from maskwright.inference.fill_mask import FillMask, FillResult

_EPILOG = """examples:
  maskwright fill runs/NAME "The larvae are black and [MASK] on snails."
  maskwright fill runs/NAME "Paris is the [MASK] of [MASK]." --top-k 3
  maskwright fill runs/NAME "It was a [MASK] day." --targets good bad
  maskwright fill runs/NAME --file sentences.txt --json
  maskwright fill runs/NAME "Hide any word of this sentence." --random
"""

_TOP_K = 5


def build_parser() -> Parser:
    """The command line of ``maskwright fill``."""
    parser = Parser("fill", "Predict hidden words.", _EPILOG)
    add_arguments(parser, "sentences with [MASK], or what the model calls it, such as <mask>")
    parser.add_argument("--top-k", type=int, help=f"predictions a mask [{_TOP_K}]")
    parser.add_argument("--targets", nargs="+", help="only these words")
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
    sentences = (s for s in read_sentences(arguments) if s.text.strip())
    blocks = split_blocks(sentences, Sentence.measure)
    first = next(blocks, None)
    if first is None:
        raise InputError("there is no sentence to fill")
    from maskwright.inference.fill_mask import FillMask

    fill = FillMask(find_model_folder(arguments.folder), arguments.device)
    num_bad = 0
    for block in chain([first], blocks):
        for sentence, answer in zip(block, _answer(fill, block, arguments), strict=True):
            if isinstance(answer, InputError):  # the other sentences have nothing to do with it
                num_bad += 1
                tell(f"InputError: {sentence.place}{answer}")
            else:
                _show(answer, arguments.json)
    return 2 if num_bad else 0


def _answer(
    fill: "FillMask", sentences: Sequence[Sentence], arguments: argparse.Namespace
) -> "Sequence[FillResult | HiddenWord | InputError]":
    texts = [sentence.text for sentence in sentences]
    if arguments.random:
        return [_hide_word(fill, text, arguments.seed) for text in texts]
    return fill.attempt(texts, arguments.top_k or _TOP_K, arguments.targets)


def _hide_word(fill: "FillMask", text: str, seed: int) -> "HiddenWord | InputError":
    try:
        return fill.hide_random_word(text, seed)
    except InputError as error:
        return error


def _show(answer: "FillResult | HiddenWord", as_json: bool) -> None:
    if isinstance(answer, HiddenWord):
        say("\n".join(answer.describe()))
    elif as_json:
        say_json(answer.to_json())
    else:
        _show_result(answer)


def _show_result(result: "FillResult") -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(result.text)}")
    for number, predictions in enumerate(result.masks, start=1):
        if len(result.masks) > 1:
            console.print(f"  mask {number}")
        for prediction in predictions:
            bar = "█" * round(30 * prediction.score)
            console.print(f"  {prediction.score:6.1%}  {escape(prediction.token):<16} [dim]{bar}")
