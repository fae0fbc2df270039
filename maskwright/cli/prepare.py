"""``maskwright prepare``: tokenizer and token shards, to be reused by many runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from maskwright.cli.flags import Arguments, Parser, add_config_flags, config_values
from maskwright.config import Plain, from_mapping, merge, read_yaml
from maskwright.console import Console
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.texts import keep_texts
from maskwright.errors import InputError
from maskwright.files import write_text
from maskwright.preparation.config import PrepareConfig
from maskwright.recipes import load_recipe
from maskwright.report.charts import check_matplotlib
from maskwright.runs.config import PretrainConfig
from maskwright.runs.find_model import find_model_folder
from maskwright.runs.run_directory import REPORT_NAME

_EPILOG = """examples:
  maskwright prepare corpus/ --out data/NAME
  maskwright prepare wiki.jsonl.gz --out data/wiki --tokenizer.vocab_size 16384
  zcat big.txt.gz | maskwright prepare - --out data/big
  maskwright prepare web.jsonl.zst --out data/web --recipe base --report --select.language en
"""
# The fields that --help shows; --help-all shows the others.
_USUAL = (
    "corpus.documents",
    "corpus.text_field",
    "corpus.valid_fraction",
    "corpus.valid_text",
    "select.language",
    "select.quality",
    "select.near_duplicates",
    "tokenizer.kind",
    "tokenizer.vocab_size",
    "tokenizer.lowercase",
    "tokenizer.path",
    "workers",
    "engine",
)


@dataclass(frozen=True)
class PrepareArguments:
    """What the command line of ``maskwright prepare`` says."""

    paths: tuple[str, ...]
    out: Path
    config: PrepareConfig
    seed: int
    writes_report: bool
    recipe: str | None


def build_parser() -> Parser:
    """Return the command line of ``maskwright prepare``."""
    parser = Parser("prepare", "Train a tokenizer and write token shards.", _EPILOG)
    parser.add_argument("text", nargs="+", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    parser.add_argument("--out", type=Path, required=True, help="folder to write, data/NAME")
    parser.add_argument("--recipe", help="tokenizer and selection of the recipe to train with")
    parser.add_argument("--config", type=Path, help="YAML file with the same keys, or a run's")
    parser.add_argument("--seed", type=int, default=0, help="draws the tokenizer's sample [0]")
    parser.add_argument(
        "--report",
        action="store_true",
        help="write OUT/report.html: what was dropped; of data that is there already, too",
    )
    add_config_flags(parser, PrepareConfig, usual=_USUAL)
    return parser


def prepare(
    text: str | Path | Sequence[str | Path] = (),
    *,
    out: str | Path,
    texts: Iterable[str] | None = None,
    recipe: str | None = None,
    config: str | Path | None = None,
    seed: int = 0,
    report: bool = False,
    **sections: Any,
) -> Path:
    """Train a tokenizer and write token shards, to be reused by many runs.

    The Python twin of ``maskwright prepare``::

        data = prepare("corpus/", out="data/mine", tokenizer={"vocab_size": 16384})
        folder = pretrain(data, out="runs/mine")

    Args:
        text: files, folders, globs, ``pydocs``, or ``hf:NAME#FIELD``.
        out: the folder to write. If it holds the same text prepared alike, it is reused; an
            interrupted preparation continues.
        texts: the documents themselves, instead of `text`: a list, or an iterator, which is read
            once. They are kept beside `out`, in ``texts-HASH.jsonl``.
        recipe: takes tokenizer and selection from the recipe to train with.
        config: a YAML file with the same keys, or a run's.
        seed: draws the sample that the tokenizer is trained on.
        report: writes ``out/report.html``: what was dropped and why.
        sections: values over the recipe, by section: ``corpus={"documents": "line"}``; see
            ``maskwright prepare --help-all``.

    Returns:
        The prepared folder, `out`.

    Raises:
        MaskwrightError: anything wrong with the input, as one line.
        TypeError: both `text` and `texts`, or `texts` that holds anything but strings.
    """
    if texts is not None:
        field = sections.get("corpus", {}).get("text_field", CorpusConfig.text_field)
        text = keep_texts(text, texts, Path(out).absolute().parent, field)
    options = {"recipe": recipe, "config": config, "seed": seed, "report": report}
    main(build_parser().fill(sections, text=text, out=out, **options))
    return Path(out)


def parse(argv: Arguments) -> PrepareArguments:
    """Reads the command line; a configuration file may be that of a whole run.

    Of a recipe and a run's file only what shapes the data is taken: not the seed, because
    `pretrain` prepares the same data for every seed.
    """
    arguments = build_parser().parse(argv)
    if arguments.seed < 0:
        raise InputError(f"--seed = {arguments.seed} must not be negative")
    values = _read_layers(arguments.recipe, arguments.config)
    described = {"select": {"describe": True}} if arguments.report else {}
    values = merge(merge(values, config_values(arguments)), described)
    config = from_mapping(PrepareConfig, values)
    text = tuple(arguments.text)
    options = (arguments.seed, arguments.report, arguments.recipe)
    return PrepareArguments(text, arguments.out, config, *options)


def _read_layers(recipe: str | None, path: Path | None) -> Plain:
    """What a recipe, and a file for `prepare` or for `pretrain` over it, say of preparing data."""
    values = read_yaml(path) if path is not None else {}
    named = values.pop("recipe", None)
    name = named if recipe is None else recipe
    if name is not None:
        values = merge(load_recipe(str(name)).values, values)
    init_from = values.get("init_from")
    if init_from is not None:  # `pretrain` prepares with the tokenizer of that model
        folder = find_model_folder(str(init_from))
        values = merge({"tokenizer": {"path": str(folder)}}, values)
    names = {field.name for field in fields(PretrainConfig)}
    other = names - {field.name for field in fields(PrepareConfig)}
    return {name: value for name, value in values.items() if name not in other}


def main(argv: Arguments) -> int:
    arguments = parse(argv)
    from maskwright.preparation.pipeline import prepare
    from maskwright.preparation.selection import read_tally
    from maskwright.report.selection_page import render_selection

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if arguments.writes_report:
        check_matplotlib()  # before the work, not after it
    out = arguments.out
    try:
        manifest = prepare(arguments.paths, out, arguments.config, arguments.seed, console.print)
    except KeyboardInterrupt:
        console.print("what is done is kept: the same command goes on")
        raise
    if arguments.writes_report:
        tally = read_tally(out)
        assert tally is not None, "it was written just now"
        write_text(out / REPORT_NAME, render_selection(str(out), manifest, tally))
        console.print(f"{out / REPORT_NAME}: open it in a browser")
    console.print(f"next: maskwright inspect {out}")
    recipe = f" --recipe {arguments.recipe}" if arguments.recipe else ""
    console.print(f"      maskwright pretrain {out}{recipe}")
    return 0
