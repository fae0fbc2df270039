"""``maskwright prepare``: token shards for many runs; ``inspect``: what a model sees of them."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

import maskwright
from maskwright.cli.flags import Parser, add_config_flags, all_values, config_values
from maskwright.console import Console, say, say_json
from maskwright.data.config import MIN_ROW_LENGTH
from maskwright.data.rows import DataPosition, RowPlanner, SegmentTable
from maskwright.errors import CheckpointError, InputError
from maskwright.files import check_new_file, write_text
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import describe_progress
from maskwright.preparation.tasks import LOST_KEY
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.prepared_folders import locate
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    check_pretraining,
    is_prepared,
    load_run_config,
    name_prepared,
    read_provenance,
)
from maskwright.shards.manifest import MANIFEST_NAME, read_manifest
from maskwright.shards.reader import ConcatStore, TokenStore, fingerprint_folders
from maskwright.tokenizer.lost import Lost

if TYPE_CHECKING:
    from maskwright.pretraining.prepared_data import PreparedData

_PREPARE_HELP = """examples:
  maskwright prepare corpus/ --out data/NAME
  maskwright prepare wiki.jsonl.gz --out data/wiki --tokenizer.vocab_size 16384
  zcat big.txt.gz | maskwright prepare - --out data/big
  maskwright prepare web.jsonl.zst --out data/web --recipe base --report --select.language en
"""
# The fields that --help shows; --help-all shows the others.
_PREPARE_USUAL = (
    "corpus.documents", "corpus.text_field", "corpus.valid_fraction", "corpus.valid_text",
    "select.language", "select.quality", "select.near_duplicates", "tokenizer.kind",
    "tokenizer.vocab_size", "tokenizer.lowercase", "tokenizer.path", "workers", "engine",
)  # fmt: skip


def prepare_parser() -> Parser:
    parser = Parser("prepare", "Train a tokenizer and write token shards.", _PREPARE_HELP)
    add = parser.add_argument
    add("text", nargs="*", help="files, folders, globs, -, pydocs, hf:NAME#FIELD")
    add("--out", type=Path, required=True, help="folder to write, data/NAME")
    add("--recipe", help="tokenizer and selection of the recipe to train with")
    add("--config", type=Path, help="YAML file with the same keys, or a run's")
    add("--seed", type=int, default=0, help="draws the tokenizer's sample [0]")
    report = "write OUT/report.html: what was dropped; of data that is there already, too"
    add("--report", action="store_true", help=report)
    add("--private", action="store_true", help="with --report: show no sample of the text in it")
    add("--status", action="store_true", help="print how far the preparation of --out is, and end")
    add_config_flags(parser, PrepareConfig(), usual=_PREPARE_USUAL)
    return parser


def prepare(argv: Sequence[str]) -> int:
    given = all_values(prepare_parser().parse(argv))
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


_SECTIONS = ("run", "mixture", "corpus", "select", "tokenizer", "model", "optim", "train")
_FILL_SAMPLE_ROWS = 4096
_RATES = tuple(round(0.05 * n, 2) for n in range(1, 13))  # of the slider
_MAX_NUMBER = 2**53  # of the numbers that name rows

_INSPECT_HELP = """examples:
  maskwright inspect data/NAME --masking.strategy words
  maskwright inspect data/NAME --rows 8 --html masking.html
  maskwright inspect runs/NAME --epoch 1 --first-row 4096 --rows 32 --row-length 64 --mask-rate 0.2
    (the rows of one step: metrics.jsonl and error messages say which)
"""


def inspect_parser() -> Parser:
    parser = Parser(
        "inspect", "Show rows, segments, masks and counts of prepared data.", _INSPECT_HELP
    )
    add = parser.add_argument
    add("folder", help="a folder that `maskwright prepare` wrote, its URL, or a run directory")
    add("--split", choices=("train", "valid"), default="train")
    add("--rows", type=int, default=2, help="rows to show [2]")
    add("--first-row", type=int, default=0, help="number of the first one [0]")
    add("--epoch", type=int, default=0, help="their epoch [0]")
    add("--row-length", type=int, help="slots in a row [as a run begins]")
    add("--mask-rate", type=float, help="share of the tokens that is hidden [as a run begins]")
    add("--json", action="store_true", help="one JSON object a row, and nothing else")
    html = "write the rows to a page with a slider for the mask rate, and nothing else"
    add("--html", type=Path, metavar="FILE", help=html)
    add("--config", type=Path, help="YAML file of the run")
    usual = ("data.packed", "masking.strategy", "masking.rate", "masking.mask_share")
    add_config_flags(parser, resolve(), skip=_SECTIONS, usual=usual)
    add("--seed", type=int, help="seed of the run [the configuration's]")
    return parser


def inspect(argv: Sequence[str]) -> int:
    arguments = inspect_parser().parse(argv)
    for name in ("rows", "first_row", "epoch"):
        _check_range(name, getattr(arguments, name), 0, _MAX_NUMBER)
    if arguments.html is not None:
        if arguments.json:
            raise InputError("--json has no effect with --html. Remove one.")
        check_new_file(arguments.html)
    folders, config = _find_data(arguments)
    row_length, mask_rate = _choose_rows(arguments, config)
    # torch is imported from here on; everything above has already been checked without it
    from maskwright.data.row_view import view_rows
    from maskwright.pretraining import build, prepared_data

    data = prepared_data.open_data(folders, config.mixture)
    rates = sorted({*_RATES, mask_rate}) if arguments.html else [mask_rate]
    masking = replace(config.masking, rate=max(rates[-1], config.masking.highest_rate))
    source = build.build_row_source(replace(config, masking=masking), data, split=arguments.split)
    position = DataPosition(row_length, arguments.epoch, arguments.first_row)
    name_source = source.corpus.source_of if isinstance(source.corpus, ConcatStore) else None
    show = partial(view_rows, source, position, arguments.rows, name_source=name_source)
    if arguments.html is not None:
        from maskwright.report.masking_page import render_rows

        note = f"{data.name}, row length {row_length}, seed {config.seed}"
        views = {rate: [*show(mask_rate=rate)] for rate in rates}
        write_text(arguments.html, render_rows("Masking", views, mask_rate, data.tokenizer, note))
        say(f"{arguments.html}: open it in a browser")
        return 0
    rows = show(mask_rate=mask_rate)
    if arguments.json:
        for row in rows:
            say_json(row.to_json(data.tokenizer))
        return 0
    console = Console(highlight=False)
    for part in data.sources.values() or [data]:
        console.print(_count(part, config, row_length))
    for line in prepared_data.describe_sources(data):
        console.print(line, markup=False)
    if arguments.rows:
        console.print(
            f"\nrow length {row_length}, mask rate {mask_rate:g}, seed {config.seed}; "
            "[black on yellow]hidden[/] [black on red]random[/] [black on green]kept[/] "
            "⟨what it was⟩"
        )
    for row in rows:
        console.print(row.to_text(data.tokenizer), soft_wrap=True)
    return 0


def _find_data(arguments: argparse.Namespace) -> tuple[dict[str, Path], PretrainConfig]:
    """Return the prepared folders by name, and the configuration that rows are made with.

    Raise InputError for a flag that contradicts the configuration of a run; CheckpointError if the
    data of a run is gone, or has become other data.
    """
    folder = locate(arguments.folder)
    values = config_values(arguments)
    seed = {} if arguments.seed is None else {"seed": arguments.seed}
    if not (folder / CONFIG_NAME).is_file() or (folder / MANIFEST_NAME).is_file():
        config = resolve(None, arguments.config, {**values, **seed})
        return {folder.name: folder}, config
    if arguments.config or values or seed:
        raise InputError(
            f"{folder} is a run, which has a configuration of its own: "
            "leave out --config, --seed and the flags of the configuration"
        )
    return _find_data_of_run(folder), load_run_config(folder, {})


def _find_data_of_run(run: Path) -> dict[str, Path]:
    check_pretraining(run)
    provenance = read_provenance(run)
    folders = name_prepared(provenance)
    for folder in folders.values():
        if not (folder / MANIFEST_NAME).is_file():
            raise CheckpointError(
                f"{folder}, the data of {run}, is gone: bring it back, or prepare it again and "
                "inspect that with --config"
            )
    if fingerprint_folders(folders) != provenance["corpus"]["fingerprint"]:
        names = " + ".join(map(str, folders.values()))
        raise CheckpointError(f"{names} is not the data that {run} began with: it has changed")
    return folders


def _choose_rows(arguments: argparse.Namespace, config: PretrainConfig) -> tuple[int, float]:
    length, rate = arguments.row_length, arguments.mask_rate
    if length is not None:
        _check_range("row_length", length, MIN_ROW_LENGTH, config.data.max_seq_length)
    highest = config.masking.highest_rate
    if rate is not None and not 0 < rate <= highest:
        raise InputError(
            f"--mask-rate = {rate:g} must be between 0 and {highest:g}, the highest of the run"
        )
    first_length = config.train.seq_length_at(0.0, config.data.max_seq_length)
    return length or first_length, rate or config.masking.rate_at(0.0)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        flag = name.replace("_", "-")
        raise InputError(f"--{flag} = {value} must be between {least:,} and {most:,}")


def _count(data: "PreparedData", config: PretrainConfig, row_length: int) -> Table:
    title = escape(data.name)
    table = Table("", "train", "valid", title=title, title_justify="left")
    stores = (data.train, data.valid)
    table.add_row("documents", *[f"{store.num_documents:,}" for store in stores])
    table.add_row("tokens", *[f"{store.num_tokens:,}" for store in stores])
    table.add_row("words", *[f"{store.info.num_words:,}" for store in stores])
    ratios = {
        "fertility (tokens per word)": [s.num_tokens / max(s.info.num_words, 1) for s in stores],
        "bytes a token": [s.info.num_bytes / max(s.num_tokens, 1) for s in stores],
    }
    for name, values in ratios.items():
        table.add_row(name, *[f"{value:.3f}" for value in values])
    unknown = data.train.unigram_counts[data.tokenizer.unk_id] / max(data.train.num_tokens, 1)
    table.add_row("unknown tokens", f"{unknown:.3%}", "")
    lost = Lost.from_plain(data.train.manifest.source.get(LOST_KEY))
    table.add_row("lost characters", f"{lost.share:.3%}", "")
    filled = [_measure_fill(store, config, row_length) for store in stores]
    table.add_row("rows an epoch", *[f"{rows:,}" for rows, _ in filled])
    table.add_row("fill rate of the rows", *[f"{share:.2%}" for _, share in filled])
    dropped = ", ".join(f"{n:,} {reason}" for reason, n in data.train.manifest.dropped.items())
    table.caption = f"dropped or repaired: {escape(dropped) or 'nothing'}"
    return table


def _measure_fill(
    store: TokenStore | ConcatStore, config: PretrainConfig, row_length: int
) -> tuple[int, float]:
    """Estimate how many rows an epoch has, and the share of their slots that hold tokens."""
    extra = config.data.special_per_segment
    table = SegmentTable(store.document_lengths, row_length - extra)
    planner = RowPlanner(table, row_length, extra, config.seed, config.data.packed)
    rows, _ = planner.plan_rows(DataPosition(row_length), min(len(table), _FILL_SAMPLE_ROWS))
    rows = rows.take((rows.epochs == 0).nonzero()[0])
    slots = planner.count_tokens(rows)
    rows_an_epoch = round(len(table) * len(rows) / len(rows.spans))
    return rows_an_epoch, slots / (len(rows) * row_length)
