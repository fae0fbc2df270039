"""``maskwright embed``: vectors of texts, from a trained model into a file."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.inputs import add_arguments, read_sentences
from maskwright.console import say
from maskwright.formatting import describe_cut

_EPILOG = """Every line is a row, blank ones too, in the order of the lines; of a table, every row.

examples:
  maskwright embed runs/NAME --file sentences.txt --out vectors.npy
  maskwright embed runs/NAME --file sentences.txt --out vectors.parquet --pooling cls
  cat *.txt | maskwright embed runs/NAME --out vectors.npy --no-normalize
  maskwright embed runs/NAME "Snails eat leaves." "Larvae eat snails." --out two.npy
"""


def build_parser() -> Parser:
    """Return the parser of ``maskwright embed``."""
    parser = Parser("embed", "Write the vectors of texts.", _EPILOG)
    add_arguments(parser, "texts")
    parser.add_argument(
        "--out", type=Path, required=True, help=".npy: float32 [texts, width]; .parquet: with texts"
    )
    parser.add_argument(
        "--pooling", choices=("mean", "cls"), help="of the tokens' vectors [the model's, or mean]"
    )
    lengths = "leave the lengths of vectors as they are"
    parser.add_argument("--no-normalize", dest="normalize", action="store_false", help=lengths)
    parser.add_argument("--batch-tokens", type=int, help="in one pass [what is fast here]")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    texts = (sentence.text for sentence in read_sentences(arguments))
    source = ("text", "file", "columns", "header")
    given = {name: one for name, one in vars(arguments).items() if name not in source}
    result = maskwright.embed(texts=texts, **given)
    say(
        f"{arguments.out}: {result.num_texts:,} texts · {result.width} wide · "
        f"{result.num_texts / result.seconds:,.0f} texts/s"
    )
    if result.num_cut:
        say(describe_cut(result.num_cut, result.num_texts, result.longest))
    return 0
