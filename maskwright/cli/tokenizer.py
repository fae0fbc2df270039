"""``maskwright tokenizer train|inspect|compare``: the tokenizer alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from maskwright.cli.flags import Parser, add_config_flags, config_values
from maskwright.config import from_mapping, section, setting
from maskwright.console import Console, make_console, print_table, say, say_json
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import ConfigError, InputError
from maskwright.files import check_new_folder
from maskwright.formatting import shorten_names
from maskwright.preparation.config import PrepareConfig
from maskwright.runs.run_directory import suggest_run
from maskwright.tokenizer.config import TokenizerConfig, check_extension
from maskwright.tokenizer.extension import extend_tokenizer
from maskwright.tokenizer.lost import MUCH
from maskwright.tokenizer.token_text import TokenizerStats, measure_tokenizer, show_tokens
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, describe_words, train_tokenizer

_TOKENIZER_HELP = """examples:
  maskwright tokenizer train corpus/ --out tokenizers/mine --tokenizer.vocab_size 16384
  maskwright tokenizer train corpus/ --out tokenizers/more --tokenizer.path tokenizers/mine \\
      --tokenizer.extend_vocab 1000
  maskwright tokenizer inspect tokenizers/mine --on corpus/sample.txt
  maskwright tokenizer inspect runs/NAME "A sentence to take apart."
  maskwright tokenizer compare tokenizers/mine runs/NAME --on corpus/sample.txt
"""


@dataclass(frozen=True)
class TokenizerRunConfig:
    """The configuration of ``tokenizer train``."""

    seed: int = setting(0, "names the sample of text")
    corpus: CorpusConfig = section(CorpusConfig)
    tokenizer: TokenizerConfig = section(TokenizerConfig)

    def __post_init__(self) -> None:
        check_extension(self.tokenizer)
        for name in ("valid_text", "valid_fraction"):
            if (value := getattr(self.corpus, name)) != getattr(CorpusConfig, name):
                rule = "has no effect here: a tokenizer learns from the whole text"
                raise ConfigError(f"corpus.{name}", value, rule, "Remove it.")
        if self.tokenizer.path is not None and not self.tokenizer.extend_vocab:
            remedy = "To add tokens to it, give --tokenizer.extend_vocab too."
            raise ConfigError("tokenizer.path", self.tokenizer.path, "exists already", remedy)


def tokenizer(argv: Sequence[str]) -> int:
    actions = {"train": train, "inspect": inspect, "compare": compare}
    if not argv or argv[0] not in actions:
        if argv and argv[0] in ("-h", "--help"):
            say(f"usage: maskwright tokenizer train|inspect|compare …\n\n{_TOKENIZER_HELP}")
            return 0
        raise InputError("say maskwright tokenizer train, inspect or compare")
    return actions[argv[0]](argv[1:])


def train(argv: Sequence[str]) -> int:
    """Train a tokenizer on text and write its folder."""
    parser = Parser("tokenizer train", "Train a tokenizer from text.", _TOKENIZER_HELP)
    parser.add_argument("text", nargs="+", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    add_config_flags(parser, TokenizerRunConfig())
    arguments = parser.parse(argv)
    config = from_mapping(TokenizerRunConfig, config_values(arguments))
    check_new_folder(arguments.out)
    counts: Counter[str] = Counter()
    texts = (document.text for document in stream_corpus(arguments.text, config.corpus, counts))
    say(f"training a {config.tokenizer.kind} tokenizer on the text", flush=True)
    if config.tokenizer.path is not None:
        base = Tokenizer.load(config.tokenizer.path)
        tokenizer = extend_tokenizer(base, texts, config.tokenizer, seed=config.seed)
    else:
        tokenizer = train_tokenizer(texts, config.tokenizer, seed=config.seed)
        told = describe_shortage(tokenizer, config.tokenizer), describe_words(tokenizer)
        for line in filter(None, told):
            say(line)
    tokenizer.save(arguments.out)
    say(f"{tokenizer.vocab_size:,} tokens in {arguments.out}, fingerprint {tokenizer.fingerprint}")
    return 0


def inspect(argv: Sequence[str]) -> int:
    """Show how a tokenizer splits text, and measure it on a corpus."""
    parser = Parser("tokenizer inspect", "Look at a tokenizer.", _TOKENIZER_HELP)
    parser.add_argument("folder", type=Path, help="a tokenizer, a model, a run, or prepared data")
    parser.add_argument("text", nargs="*", help="sentences to take apart, as fill reads them")
    parser.add_argument("--on", nargs="+", default=[], help="text to measure fertility on")
    add_config_flags(parser, TokenizerRunConfig(), skip=NO_READING)
    arguments = parser.parse(argv)
    config = from_mapping(TokenizerRunConfig, config_values(arguments)).corpus
    if hint := suggest_run(arguments.folder):
        raise InputError(f"{arguments.folder} is not a folder{hint}")
    tokenizer = Tokenizer.load(arguments.folder)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{tokenizer.vocab_size:,} tokens, fingerprint {tokenizer.fingerprint}")
    for text in arguments.text:
        tokens = show_tokens(tokenizer, tokenizer.encode_prompt(text).ids.tolist())
        console.print(" ".join(tokens), markup=False)
    if arguments.on:
        documents = stream_corpus(arguments.on, config, Counter())
        stats = measure_tokenizer(tokenizer, (document.text for document in documents))
        console.print(_describe(stats))
    return 0


def _describe(stats: TokenizerStats) -> Table:
    table = Table(show_header=False)
    table.add_row("text", f"{stats.num_words:,} words, {stats.num_characters:,} characters")
    for title, field, how in _ROWS:
        table.add_row(title, how.format(getattr(stats, field)))
    table.add_row("most frequent", escape(" ".join(token for token, _ in stats.most_frequent)))
    table.add_row("longest", escape(" ".join(stats.longest)))
    return table


_COMPARE_HELP = """A tokenizer is a folder with tokenizer.json: of `tokenizer train`, of a model, or
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
# What is shown of a text: title, name, how.
_ROWS = (
    ("tokens", "num_tokens", "{:,}"),
    ("fertility (tokens per word)", "fertility", "{:.3f}"),
    ("tokens a character", "tokens_per_character", "{:.3f}"),
    ("bytes a token", "bytes_per_token", "{:.2f}"),
    ("unknown tokens", "unknown_share", "{:.3%}"),
    ("lost characters", "lost_share", "{:.3%}"),
    ("words of several tokens", "split_share", "{:.1%}"),
    ("vocabulary used", "used_share", "{:.1%}"),
)


def compare(argv: Sequence[str]) -> int:
    """Measure every tokenizer on every text, and show words that they split differently."""
    parser = Parser("tokenizer compare", "Put tokenizers side by side.", _COMPARE_HELP)
    parser.add_argument("folders", nargs="+", type=Path, help="two tokenizers or more")
    parser.add_argument("--on", nargs="+", required=True, help="texts to measure on, one by one")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object for each text and tokenizer"
    )
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
        for text, each in measured.items():
            for name, stats in each.items():
                say_json({"text": text, "tokenizer": name, **asdict(stats)})
        return 0
    console = make_console()
    for text, found in measured.items():
        _show_comparison(console, text, found, tokenizers, config)
    return 0


def measure(tokenizers: Tokenizers, text: str, config: CorpusConfig) -> Measured:
    """Return the statistics of each tokenizer on a text, which is read once for each."""
    return {name: measure_tokenizer(one, _read(text, config)) for name, one in tokenizers.items()}


def _read(text: str, config: CorpusConfig) -> Iterator[str]:
    return (document.text for document in stream_corpus([text], config, Counter()))


def _show_comparison(
    console: Console, text: str, found: Measured, tokenizers: Tokenizers, config: CorpusConfig
) -> None:
    first = next(iter(found.values()))
    console.print(f"[bold]{escape(text)}[/bold]: {first.num_words:,} words")
    rows = [["vocabulary", *(f"{one.vocab_size:,}" for one in tokenizers.values())]]
    for title, field, how in _ROWS:
        rows.append([title, *(how.format(getattr(stats, field)) for stats in found.values())])
    print_table(console, ["", *found], rows)
    for name, stats in found.items():
        if stats.lost_share > MUCH:
            console.print(
                f"{name} does not know {stats.lost_share:.0%} of the letters of this text: "
                "that it needs few tokens is no advantage.",
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
