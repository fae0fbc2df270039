"""``maskwright embed`` and ``search``: vectors of texts, and the texts nearest to a query."""

from argparse import BooleanOptionalAction, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice, tee
from pathlib import Path

from rich.markup import escape

import maskwright
from maskwright.cli.flags import Parser, add_table_flags
from maskwright.cli.inputs import STANDARD_INPUT, TEXT_COLUMN, add_arguments, read_sentences
from maskwright.console import make_console, say, say_json
from maskwright.corpus.text_inputs import PlacedText
from maskwright.errors import InputError
from maskwright.formatting import describe_cut
from maskwright.runs.find_model import HELP

_EMBED_HELP = """\
Every line is a row, blank ones too, in the order of the lines; of a table, every row; of FASTA,
FASTQ and SMILES, every record. Ids (of records, or a column id of a table) are a column of
.parquet, and a file of lines beside .npy: vectors.ids.txt.

examples:
  maskwright embed runs/NAME --file sentences.txt --out vectors.npy
  maskwright embed runs/NAME --file sentences.txt --out vectors.parquet --pooling cls
  cat *.txt | maskwright embed runs/NAME --out vectors.npy --no-normalize
  maskwright embed runs/NAME --file proteins.fasta --out proteins.parquet
  maskwright embed runs/NAME --file proteins.fasta --out residues.parquet --tokens --layer 3
  maskwright embed runs/NAME "Snails eat leaves." "Larvae eat snails." --out two.npy
"""


def embed_parser() -> Parser:
    parser = Parser("embed", "Write the vectors of texts.", _EMBED_HELP)
    add_arguments(parser, "texts")
    add = parser.add_argument
    add(
        "--out", type=Path, required=True, help=".npy: float32 [texts, width]; .parquet: with texts"
    )
    add("--pooling", choices=("mean", "cls"), help="of the tokens' vectors [the model's, or mean]")
    lengths = "scale vectors to length 1 [as the model states, or yes]"
    add("--normalize", action=BooleanOptionalAction, default=None, help=lengths)
    add("--prompt-name", metavar="NAME", help="a prompt of the model [its default, or none]")
    add("--tokens", action="store_true", help="a vector for each token, not for each text")
    add("--layer", type=int, metavar="N", help="of --tokens: after block N; 0: embeddings [last]")
    add("--batch-tokens", type=int, help="in one pass [what is fast here]")
    return parser


def _part(sentences: Iterator[PlacedText]) -> tuple[Iterator[str], Iterator[str] | None]:
    """Return the texts and their ids; None if they have no ids."""
    first = list(islice(sentences, 1))
    named, sentences = tee(chain(first, sentences))
    texts = (sentence.text for sentence in sentences)
    has_ids = bool(first) and first[0].id is not None
    return texts, (one.id or "" for one in named) if has_ids else None


def embed(argv: Sequence[str]) -> int:
    arguments = embed_parser().parse(argv)
    texts, ids = _part(read_sentences(arguments))
    source = ("text", "file", "columns", "header")
    given = {name: one for name, one in vars(arguments).items() if name not in source}
    result = maskwright.embed(texts=texts, ids=ids, **given)
    say(
        f"{arguments.out}: {result.num_texts:,} texts · {result.width} wide · "
        f"{result.num_texts / result.seconds:,.0f} texts/s"
    )
    if result.num_cut:
        say(describe_cut(result.num_cut, result.num_texts, result.longest))
    return 0


_SEARCH_HELP = """\
Each line shows the cosine, the number of the text in the file, its id if it has
one, and the text. Train a model for it with finetune --task embedding: one that has only predicted
masked words finds texts with the same words.

examples:
  maskwright search runs/NAME "food of snails" --file notes.txt
  maskwright search runs/NAME "late parcel" "refund" --file mails.csv --top 3 --json
  maskwright search runs/NAME MKTAYIAKQRQISFVK --file proteins.fasta
  maskwright search runs/NAME --file notes.txt < queries.txt
"""


def search_parser() -> Parser:
    parser = Parser("search", "Print the texts nearest to a query.", _SEARCH_HELP)
    add = parser.add_argument
    add("folder", help=HELP)
    add("queries", nargs="*", help="none, or -: standard input, one a line")
    file = "texts to search, one a line, or a table with a text column"
    add("--file", type=Path, required=True, help=file)
    add_table_flags(parser, TEXT_COLUMN)
    add("--top", type=int, default=10, metavar="N", help="texts to print [10]")
    add("--pooling", choices=("mean", "cls"), help="of the tokens' vectors [the model's, or mean]")
    add("--batch-tokens", type=int, help="in one pass [what is fast here]")
    add("--device", help="where to compute, such as cpu or cuda [a GPU if any]")
    add("--json", action="store_true", help="one JSON object a query")
    return parser


def search(argv: Sequence[str]) -> int:
    arguments = search_parser().parse(argv)
    if arguments.file == STANDARD_INPUT and arguments.queries in ([], ["-"]):
        raise InputError("queries and --file cannot both be standard input. Name a file.")
    asked = Namespace(text=arguments.queries, file=None, columns=(), header=None)
    queries = [query.text for query in read_sentences(asked) if query.text.strip()]
    searched = Namespace(**{**vars(arguments), "text": []})
    texts, ids = _part(read_sentences(searched))
    found = maskwright.search(
        arguments.folder,
        queries,
        texts,
        ids=ids,
        top=arguments.top,
        pooling=arguments.pooling,
        batch_tokens=arguments.batch_tokens,
        device=arguments.device,
    )
    console = make_console()
    for query, matches in zip(queries, found, strict=True):
        if arguments.json:
            shown = [{k: v for k, v in asdict(match).items() if v is not None} for match in matches]
            say_json({"query": query, "matches": shown})
            continue
        if len(queries) > 1:
            console.print(f"[bold]{escape(query)}")
        for match in matches:
            words = [match.id or "", *match.text.split()]
            text = escape(" ".join(words).strip())
            console.print(f"{match.score:7.3f}  [dim]{match.number:>6}[/]  {text}")
    return 0
