"""``maskwright prepare``: tokenizer and token shards, to be reused by many runs."""

from collections.abc import Sequence
from pathlib import Path

import maskwright
from maskwright.cli.flags import Parser, add_config_flags, all_values
from maskwright.console import say
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import describe_progress
from maskwright.runs.run_directory import is_prepared
from maskwright.shards.manifest import read_manifest

_EPILOG = """examples:
  maskwright prepare corpus/ --out data/NAME
  maskwright prepare wiki.jsonl.gz --out data/wiki --tokenizer.vocab_size 16384
  zcat big.txt.gz | maskwright prepare - --out data/big
  maskwright prepare web.jsonl.zst --out data/web --recipe base --report --select.language en
"""
# The fields that --help shows; --help-all shows the others.
_USUAL = (
    "corpus.documents", "corpus.text_field", "corpus.valid_fraction", "corpus.valid_text",
    "select.language", "select.quality", "select.near_duplicates", "tokenizer.kind",
    "tokenizer.vocab_size", "tokenizer.lowercase", "tokenizer.path", "workers", "engine",
)  # fmt: skip


def build_parser() -> Parser:
    """Return the command line of ``maskwright prepare``."""
    parser = Parser("prepare", "Train a tokenizer and write token shards.", _EPILOG)
    parser.add_argument("text", nargs="*", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    parser.add_argument("--out", type=Path, required=True, help="folder to write, data/NAME")
    parser.add_argument("--recipe", help="tokenizer and selection of the recipe to train with")
    parser.add_argument("--config", type=Path, help="YAML file with the same keys, or a run's")
    parser.add_argument("--seed", type=int, default=0, help="draws the tokenizer's sample [0]")
    report = "write OUT/report.html: what was dropped; of data that is there already, too"
    parser.add_argument("--report", action="store_true", help=report)
    private = "with --report: show no sample of the text in it"
    parser.add_argument("--private", action="store_true", help=private)
    parser.add_argument(
        "--status", action="store_true", help="print how far the preparation of --out is, and end"
    )
    add_config_flags(parser, PrepareConfig(), usual=_USUAL)
    return parser


def main(argv: Sequence[str]) -> int:
    given = all_values(build_parser().parse(argv))
    if given.pop("status"):
        for line in describe_progress(given["out"]):
            say(line)
        return 0
    out = maskwright.prepare(**given)
    # Not yet, by Slurm; or without text to validate on, which both commands refuse.
    if not is_prepared(out) or not read_manifest(out).splits["valid"].num_tokens:
        return 0
    say(f"next: maskwright inspect {out}")
    recipe = f" --recipe {given['recipe']}" if given["recipe"] else ""
    say(f"      maskwright pretrain {out}{recipe}")
    return 0
