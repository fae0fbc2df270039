"""``maskwright search``: the texts of a file that are nearest to a query."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser, add_table_flags
from maskwright.cli.inputs import TEXT_COLUMN, read_sentences
from maskwright.cli.tables import make_console
from maskwright.console import say_json
from maskwright.runs.find_model import HELP

_EPILOG = """Each line shows the cosine, the number of the text in the file, and the text. Train a
model for it with finetune --task embedding: one that has only predicted masked words finds texts
with the same words.

examples:
  maskwright search runs/NAME "food of snails" --file notes.txt
  maskwright search runs/NAME "late parcel" "refund" --file mails.csv --top 3 --json
  maskwright search runs/NAME --file notes.txt < queries.txt
"""


def build_parser() -> Parser:
    """Return the parser of ``maskwright search``."""
    parser = Parser("search", "Print the texts nearest to a query.", _EPILOG)
    parser.add_argument("folder", help=HELP)
    parser.add_argument("queries", nargs="*", help="none, or -: standard input, one a line")
    file = "texts to search, one a line, or a table with a text column"
    parser.add_argument("--file", type=Path, required=True, help=file)
    add_table_flags(parser, TEXT_COLUMN)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="texts to print [10]")
    parser.add_argument(
        "--pooling", choices=("mean", "cls"), help="of the tokens' vectors [the model's, or mean]"
    )
    parser.add_argument("--batch-tokens", type=int, help="in one pass [what is fast here]")
    parser.add_argument("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    parser.add_argument("--json", action="store_true", help="one JSON object a query")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse(argv)
    asked = Namespace(text=arguments.queries, file=None, columns=(), header=None)
    queries = [query.text for query in read_sentences(asked) if query.text.strip()]
    searched = Namespace(**{**vars(arguments), "text": []})
    texts = (one.text for one in read_sentences(searched))
    found = maskwright.search(
        arguments.folder,
        queries,
        texts,
        top=arguments.top,
        pooling=arguments.pooling,
        batch_tokens=arguments.batch_tokens,
        device=arguments.device,
    )
    console = make_console()
    for query, matches in zip(queries, found, strict=True):
        if arguments.json:
            say_json({"query": query, "matches": [asdict(match) for match in matches]})
            continue
        if len(queries) > 1:
            console.print(f"[bold]{escape(query)}")
        for match in matches:
            text = escape(" ".join(match.text.split()))
            console.print(f"{match.score:7.3f}  [dim]{match.number:>6}[/]  {text}")
    return 0
