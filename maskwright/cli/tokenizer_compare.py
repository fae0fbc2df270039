"""``maskwright tokenizer compare``: which of several tokenizers fits a text, or each of several."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

from maskwright.cli.flags import Parser, add_config_flags, config_values
from maskwright.cli.tables import make_console, print_table
from maskwright.config import from_mapping
from maskwright.console import Console, say_json
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import InputError
from maskwright.formatting import shorten_names
from maskwright.preparation.config import PrepareConfig
from maskwright.tokenizer.token_text import TokenizerStats, measure_tokenizer, show_tokens
from maskwright.tokenizer.tokenizer import Tokenizer

_EPILOG = """A tokenizer is a folder with tokenizer.json: of `tokenizer train`, of a model, or
the one in a run or in prepared data. Each --on is measured by itself: name one for each language.

examples:
  maskwright tokenizer compare tokenizers/small tokenizers/large --on corpus/sample.txt
  maskwright tokenizer compare runs/A data/B --on english.txt korean.txt --json
"""
# What says nothing of how the text of --on is read.
NO_READING = ("run", "select", "tokenizer", "cluster", "corpus.valid_fraction", "corpus.valid_text")
Tokenizers = dict[str, Tokenizer]
Measured = dict[str, TokenizerStats]
_NUM_WORDS = 12
_MUCH_UNKNOWN = 0.01  # of the tokens
# What is shown of a text: title, name, how.
_ROWS = (
    ("tokens", "num_tokens", "{:,}"),
    ("tokens per word", "fertility", "{:.3f}"),
    ("bytes a token", "bytes_per_token", "{:.2f}"),
    ("unknown tokens", "unknown_share", "{:.3%}"),
    ("words of several tokens", "split_share", "{:.1%}"),
    ("vocabulary used", "used_share", "{:.1%}"),
)


def compare(argv: Sequence[str]) -> int:
    """Measure every tokenizer on every text, and show words that they split differently."""
    parser = Parser("tokenizer compare", "Put tokenizers side by side.", _EPILOG)
    parser.add_argument("folders", nargs="+", type=Path, help="two tokenizers or more")
    parser.add_argument("--on", nargs="+", required=True, help="texts to measure on, one by one")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    add_config_flags(parser, PrepareConfig(), skip=NO_READING)
    arguments = parser.parse(argv)
    config = from_mapping(PrepareConfig, config_values(arguments)).corpus
    if len(arguments.folders) < 2:
        raise InputError("compare needs at least two tokenizers")
    if "-" in arguments.on:
        raise InputError("--on - can be read only once, and there are several tokenizers")
    if len(set(arguments.folders)) < len(arguments.folders):
        raise InputError("compare needs different tokenizers: one is named twice. Remove it.")
    names = shorten_names([str(folder) for folder in arguments.folders])
    tokenizers = dict(zip(names, map(Tokenizer.load, arguments.folders), strict=True))
    measured = {text: measure(tokenizers, text, config) for text in arguments.on}
    if arguments.json:
        plain = {text: {n: asdict(s) for n, s in each.items()} for text, each in measured.items()}
        say_json(plain, indent=2)
        return 0
    console = make_console()
    for text, found in measured.items():
        _show(console, text, found, tokenizers, config)
    return 0


def measure(tokenizers: Tokenizers, text: str, config: CorpusConfig) -> Measured:
    """Return the statistics of each tokenizer on a text, which is read once for each."""
    return {name: measure_tokenizer(one, _read(text, config)) for name, one in tokenizers.items()}


def _read(text: str, config: CorpusConfig) -> Iterator[str]:
    return (document.text for document in stream_corpus([text], config, Counter()))


def _show(
    console: Console, text: str, found: Measured, tokenizers: Tokenizers, config: CorpusConfig
) -> None:
    first = next(iter(found.values()))
    console.print(f"[bold]{escape(text)}[/bold]: {first.num_words:,} words")
    rows = [["vocabulary", *(f"{one.vocab_size:,}" for one in tokenizers.values())]]
    for title, field, how in _ROWS:
        rows.append([title, *(how.format(getattr(stats, field)) for stats in found.values())])
    print_table(console, ["", *found], rows)
    for name, stats in found.items():
        if stats.unknown_share > _MUCH_UNKNOWN:
            console.print(
                f"{name} does not know {stats.unknown_share:.0%} of this text: that it needs few "
                "tokens is no advantage.",
                markup=False,
            )
    lines = list_differences(text, tokenizers, config)
    if lines:
        console.print("\nFrequent words that they take apart differently:")
    for line in lines:
        console.print(f"  {line}", markup=False)
    console.print()


def list_differences(text: str, tokenizers: Tokenizers, config: CorpusConfig) -> list[str]:
    """Return a line for each frequent word of which one tokenizer makes more tokens."""
    counts: Counter[str] = Counter()
    for document in _read(text, config):
        counts.update(document.split())
    lines: list[str] = []
    for word, count in counts.most_common():
        pieces = [split_word(one, word) for one in tokenizers.values()]
        if len({len(each) for each in pieces}) > 1:
            shown = "  |  ".join(" ".join(each) for each in pieces)
            lines.append(f"{word} ({count:,})   {shown}")
        if len(lines) == _NUM_WORDS:
            break
    return lines


def split_word(tokenizer: Tokenizer, word: str) -> list[str]:
    """Return the tokens of `word` as it occurs in running text: after a blank.

    Byte-level BPE has a token for "▁the", the word with its blank, and may have none for "the". A
    token of the blank alone is left out: it is no piece of the word.
    """
    encoded = tokenizer.encode_with_offsets(f"{word} {word}")
    of_second = encoded.offsets[:, 1] > len(word) + 1
    return show_tokens(tokenizer, encoded.ids[of_second].tolist())
