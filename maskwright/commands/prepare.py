"""``maskwright prepare``: tokenizer and token shards, to be reused by many runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from maskwright.commands.flags import Parser, add_config_flags, config_values
from maskwright.config import from_mapping, merge, read_yaml
from maskwright.preparation.config import PrepareConfig

_EPILOG = """examples:
  maskwright prepare corpus/ --out data/NAME
  maskwright prepare wiki.jsonl.gz --out data/wiki --tokenizer.vocab_size 16384
  zcat big.txt.gz | maskwright prepare - --out data/big
"""


@dataclass(frozen=True)
class PrepareArguments:
    """What the command line of ``maskwright prepare`` says."""

    paths: tuple[str, ...]
    out: Path
    config: PrepareConfig


def parse(argv: Sequence[str]) -> PrepareArguments:
    """Reads the command line; a configuration file may be that of a whole run."""
    parser = Parser("prepare", "Train a tokenizer and write token shards.", _EPILOG)
    parser.add_argument("text", nargs="+", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    parser.add_argument("--out", type=Path, required=True, help="folder to write, data/NAME")
    parser.add_argument("--config", type=Path, help="YAML file with the same keys as the flags")
    add_config_flags(parser, PrepareConfig)
    arguments = parser.parse(argv)
    values = read_yaml(arguments.config) if arguments.config else {}
    config = from_mapping(PrepareConfig, merge(values, config_values(arguments)))
    return PrepareArguments(tuple(arguments.text), arguments.out, config)


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    from maskwright.preparation.pipeline import prepare

    console = Console(highlight=False, soft_wrap=True)
    prepare(arguments.paths, arguments.out, arguments.config, report=console.print)
    console.print(f"next: maskwright inspect {arguments.out}")
    console.print(f"      maskwright pretrain {arguments.out}")
    return 0
