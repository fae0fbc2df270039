"""``maskwright tokenizer train|inspect|compare``: the tokenizer alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from maskwright.cli.flags import Parser, add_config_flags, config_values
from maskwright.cli.tokenizer_compare import NO_READING, compare
from maskwright.config import from_mapping, section, setting
from maskwright.console import Console, say
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.sources import stream_corpus
from maskwright.errors import ConfigError, InputError
from maskwright.files import check_new_folder
from maskwright.runs.run_directory import suggest_run
from maskwright.tokenizer.config import TokenizerConfig, check_extension
from maskwright.tokenizer.extension import extend_tokenizer
from maskwright.tokenizer.token_text import TokenizerStats, measure_tokenizer, show_tokens
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

_EPILOG = """examples:
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


def main(argv: Sequence[str]) -> int:
    actions = {"train": train, "inspect": inspect, "compare": compare}
    if not argv or argv[0] not in actions:
        if argv and argv[0] in ("-h", "--help"):
            say(f"usage: maskwright tokenizer train|inspect|compare …\n\n{_EPILOG}")
            return 0
        raise InputError("say maskwright tokenizer train, inspect or compare")
    return actions[argv[0]](argv[1:])


def train(argv: Sequence[str]) -> int:
    """Train a tokenizer on text and write its folder."""
    parser = Parser("tokenizer train", "Train a tokenizer from text.", _EPILOG)
    parser.add_argument("text", nargs="+", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    add_config_flags(parser, TokenizerRunConfig())
    arguments = parser.parse(argv)
    config = from_mapping(TokenizerRunConfig, config_values(arguments))
    check_new_folder(arguments.out)
    counts: Counter[str] = Counter()
    texts = (document.text for document in stream_corpus(arguments.text, config.corpus, counts))
    if config.tokenizer.path is not None:
        base = Tokenizer.load(config.tokenizer.path)
        tokenizer = extend_tokenizer(base, texts, config.tokenizer, seed=config.seed)
    else:
        tokenizer = train_tokenizer(texts, config.tokenizer, seed=config.seed)
        if line := describe_shortage(tokenizer, config.tokenizer):
            say(line)
    tokenizer.save(arguments.out)
    say(f"{tokenizer.vocab_size:,} tokens in {arguments.out}, fingerprint {tokenizer.fingerprint}")
    return 0


def inspect(argv: Sequence[str]) -> int:
    """Show how a tokenizer splits text, and measure it on a corpus."""
    parser = Parser("tokenizer inspect", "Look at a tokenizer.", _EPILOG)
    parser.add_argument("folder", type=Path, help="a tokenizer, a model, a run, or prepared data")
    parser.add_argument("text", nargs="*", help="sentences to take apart")
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
        tokens = show_tokens(tokenizer, tokenizer.encode(text).ids.tolist())
        console.print(" ".join(tokens), markup=False)
    if arguments.on:
        documents = stream_corpus(arguments.on, config, Counter())
        stats = measure_tokenizer(tokenizer, (document.text for document in documents))
        console.print(_describe(stats))
    return 0


def _describe(stats: TokenizerStats) -> Table:
    table = Table(show_header=False)
    table.add_row("text", f"{stats.num_words:,} words, {stats.num_characters:,} characters")
    table.add_row("tokens", f"{stats.num_tokens:,}")
    table.add_row("fertility (tokens per word)", f"{stats.fertility:.3f}")
    table.add_row("tokens a character", f"{stats.tokens_per_character:.3f}")
    table.add_row("bytes a token", f"{stats.bytes_per_token:.2f}")
    table.add_row("unknown tokens", f"{stats.unknown_share:.3%}")
    table.add_row("words of several tokens", f"{stats.split_share:.1%}")
    table.add_row("vocabulary used", f"{stats.used_share:.1%}")
    table.add_row("most frequent", escape(" ".join(token for token, _ in stats.most_frequent)))
    table.add_row("longest", escape(" ".join(stats.longest)))
    return table
