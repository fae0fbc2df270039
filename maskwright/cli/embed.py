"""``maskwright embed``: vectors of texts, from a trained model into a file."""

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from maskwright.cli.flags import Parser
from maskwright.cli.inputs import Sentence, add_arguments, read_sentences
from maskwright.console import say, tell
from maskwright.errors import InputError
from maskwright.formatting import describe_cut
from maskwright.inference.text_model import split_blocks
from maskwright.progress import Pulse
from maskwright.runs.find_model import find_model_folder

_EPILOG = """Every line is a row, blank ones too, in the order of the lines.

examples:
  maskwright embed runs/NAME --file sentences.txt --out vectors.npy
  maskwright embed runs/NAME --file sentences.txt --out vectors.parquet --pooling cls
  cat *.txt | maskwright embed runs/NAME --out vectors.npy --no-normalize
  maskwright embed runs/NAME "Snails eat leaves." "Larvae eat snails." --out two.npy
"""


def build_parser() -> Parser:
    """The command line of ``maskwright embed``."""
    parser = Parser("embed", "Write the vectors of texts.", _EPILOG)
    add_arguments(parser, "texts")
    parser.add_argument(
        "--out", type=Path, required=True, help=".npy: float32 [texts, width]; .parquet: with texts"
    )
    parser.add_argument(
        "--pooling", choices=("mean", "cls"), default="mean", help="of the tokens' vectors [mean]"
    )
    parser.add_argument(
        "--no-normalize", action="store_true", help="leave the lengths of vectors as they are"
    )
    parser.add_argument("--batch-tokens", type=int, help="in one pass [what is fast here]")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    if arguments.batch_tokens is not None and arguments.batch_tokens < 1:
        raise InputError(f"--batch-tokens = {arguments.batch_tokens} must be at least 1")
    from maskwright.inference.vector_files import check_out, writing_vectors

    check_out(arguments.out)
    blocks = split_blocks(read_sentences(arguments), Sentence.measure)
    first = next(blocks, None)
    if first is None:
        raise InputError("there is no text to embed")
    from maskwright.inference.embed import Embedder

    folder = find_model_folder(arguments.folder)
    embed = Embedder(folder, arguments.device, arguments.pooling, not arguments.no_normalize)
    num_texts, seconds, pulse = 0, 0.0, Pulse(tell)
    with writing_vectors(arguments.out, embed.width) as add:
        for block in chain([first], blocks):
            texts = [sentence.text for sentence in block]
            started = time.perf_counter()
            vectors = embed(texts, arguments.batch_tokens)
            seconds += time.perf_counter() - started
            num_texts += len(texts)
            add(texts, vectors)
            pulse.beat(f"{num_texts:,} texts so far, {num_texts / seconds:,.0f} a second")
    say(
        f"{arguments.out}: {num_texts:,} texts · {embed.width} wide · "
        f"{num_texts / seconds:,.0f} texts/s"
    )
    if embed.num_cut:
        say(describe_cut(embed.num_cut, num_texts, embed.longest))
    return 0
