"""``maskwright inspect``: what a model will see of prepared data."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maskwright.commands.config import PretrainConfig, resolve
from maskwright.commands.flags import Parser, add_config_flags, config_values
from maskwright.errors import InputError

_SECTIONS = ("run", "corpus", "tokenizer", "model", "optim", "train")
_FILL_SAMPLE_ROWS = 4096


def main(argv: Sequence[str]) -> int:
    parser = Parser("inspect", "Show rows, segments, masks and counts of prepared data.")
    parser.add_argument("folder", type=Path, help="a folder that `maskwright prepare` wrote")
    parser.add_argument("--split", choices=("train", "valid"), default="train")
    parser.add_argument("--rows", type=int, default=2, help="rows to show [2]")
    parser.add_argument("--first-row", type=int, default=0, help="number of the first one [0]")
    parser.add_argument("--epoch", type=int, default=0, help="their epoch [0]")
    parser.add_argument("--config", type=Path, help="YAML file of the run")
    add_config_flags(parser, PretrainConfig, skip=_SECTIONS)
    parser.add_argument("--seed", type=int, help="seed of the run [the configuration's]")
    arguments = parser.parse(argv)
    if arguments.rows < 0 or arguments.first_row < 0 or arguments.epoch < 0:
        raise InputError("--rows, --first-row and --epoch must not be negative")
    seed = {} if arguments.seed is None else {"seed": arguments.seed}
    config = resolve(None, arguments.config, {**config_values(arguments), **seed})
    from maskwright.commands.assemble import PreparedData

    data = PreparedData(arguments.folder)
    console = Console(highlight=False)
    console.print(_count(data, config))
    _show_rows(console, data, config, arguments)
    return 0


def _count(data, config: PretrainConfig) -> Table:
    """Counts of both splits side by side."""
    table = Table("", "train", "valid", title=str(data.folder), title_justify="left")
    stores = (data.train, data.valid)
    table.add_row("documents", *[f"{store.num_documents:,}" for store in stores])
    table.add_row("tokens", *[f"{store.num_tokens:,}" for store in stores])
    table.add_row("words", *[f"{store.info.num_words:,}" for store in stores])
    ratios = {
        "fertility (tokens a word)": [s.num_tokens / max(s.info.num_words, 1) for s in stores],
        "bytes a token": [s.info.num_bytes / max(s.num_tokens, 1) for s in stores],
    }
    for name, values in ratios.items():
        table.add_row(name, *[f"{value:.3f}" for value in values])
    unknown = data.train.unigram_counts[data.tokenizer.unk_id] / max(data.train.num_tokens, 1)
    table.add_row("unknown tokens", f"{unknown:.3%}", "")
    filled = [_measure_fill(data, config, split) for split in ("train", "valid")]
    table.add_row("rows an epoch", *[f"{rows:,}" for rows, _ in filled])
    table.add_row("fill rate of the rows", *[f"{share:.2%}" for _, share in filled])
    dropped = ", ".join(f"{n:,} {reason}" for reason, n in data.train.manifest.dropped.items())
    table.caption = f"dropped or repaired: {dropped or 'nothing'}"
    return table


def _measure_fill(data, config: PretrainConfig, split: str) -> tuple[int, float]:
    """About how many rows an epoch has, and the share of their slots that holds tokens."""
    from maskwright.data.rows import DataPosition

    planner = _source(data, config, split).planner(_first_length(config))
    segments = len(planner.segments)
    if segments == 0:
        return 0, 0.0
    rows, _ = planner.plan_rows(DataPosition(planner.row_length), min(segments, _FILL_SAMPLE_ROWS))
    rows = [row for row in rows if row.epoch == 0]
    num_segments = sum(len(row.segments) for row in rows)
    slots = sum(length + planner.extra_slots for row in rows for _, length in row.segments)
    rows_an_epoch = round(segments * len(rows) / num_segments)
    return rows_an_epoch, slots / (len(rows) * planner.row_length)


def _first_length(config: PretrainConfig) -> int:
    """The length of a run's first rows."""
    return config.train.seq_length_at(0.0, config.data.max_seq_length)


def _source(data, config: PretrainConfig, split: str):
    from maskwright.commands.assemble import build_row_source

    source = build_row_source(config, data)
    source.corpus = data.train if split == "train" else data.valid
    return source


def _show_rows(console: Console, data, config: PretrainConfig, arguments) -> None:
    """Rows as the model gets them, masked tokens in colour with what they were."""
    from maskwright.data.loader import StepRequest
    from maskwright.data.rows import DataPosition

    if arguments.rows == 0:
        return
    length = _first_length(config)
    source = _source(data, config, arguments.split)
    if not len(source.planner(length).segments):
        raise InputError(f"{data.folder} has no {arguments.split} tokens")
    position = DataPosition(length, arguments.epoch, arguments.first_row)
    request = StepRequest(length, arguments.rows, arguments.rows, config.masking.rate)
    batch = source.load(request, position).micro_batches[0]
    labels = np.full(len(batch.input_ids), -100)
    used = batch.masked_labels.numpy() != -100
    labels[batch.masked_positions.numpy()[used]] = batch.masked_labels.numpy()[used]
    console.print(
        f"\n{arguments.rows} rows from row {arguments.first_row} of epoch {arguments.epoch}: "
        f"{batch.num_tokens:,} tokens, {batch.num_predictions:,} hidden "
        f"({batch.num_predictions / batch.num_tokens:.1%}); "
        "[black on yellow]hidden[/] [black on red]random[/] [black on green]kept[/], "
        "then what it was\n"
        f"as a run begins: row length {length}, mask rate {config.masking.rate:g}, "
        f"seed {config.seed}"
    )
    for first in range(0, len(labels), length):
        slots = slice(first, first + length)
        console.print(Text(f"\nrow {arguments.first_row + first // length}", style="bold"))
        console.print(
            _paint(
                data.tokenizer,
                batch.input_ids[slots].tolist(),
                labels[slots].tolist(),
                batch.segment_ids[slots].tolist(),
            )
        )


def _paint(tokenizer, ids: list[int], labels: list[int], segments: list[int]) -> Text:
    line = Text()
    previous = segments[0]
    for token_id, label, segment in zip(ids, labels, segments, strict=True):
        if token_id == tokenizer.pad_id:
            continue
        if segment != previous:
            line.append("\n│ ", style="dim")
            previous = segment
        token = tokenizer.token(token_id)
        if label == -100:
            line.append(token + " ")
            continue
        kinds = {tokenizer.mask_id: "black on yellow", label: "black on green"}
        line.append(token, style=kinds.get(token_id, "black on red"))
        line.append(f"={tokenizer.token(label)} ", style="dim")
    padding = ids.count(tokenizer.pad_id)
    if padding:
        line.append(f"[{padding} empty]", style="dim")
    return line
