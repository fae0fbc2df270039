"""Compare training speed with transformers' Trainer and with bare matrix products.

All models have 6 layers of width 256, 8,192 words and 2,048 positions per step; a step includes
loading, masking, forward, backward, optimizer and logging. On packed text the rows are full. On
sentences the peer's rows are padded, to the longest of a batch as `run_mlm.py --line_by_line` does
or to the whole row as its `--pad_to_max_length` does; ours hold several sentences. Throughput
counts real tokens; padding is excluded. The peer is not compiled, which is its default. Contenders
take turns, each in its own process; ratios are medians over the rounds. ``products of`` is a
step that consists of its matrix products and nothing else, each timed at its shape.
"""

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.common import add_data, divide, find_prepared, race, run_alone, write_result
from benchmarks.matrix_products import list_orthogonalization, list_step
from benchmarks.trainer_peer import (
    Architecture,
    Clock,
    RowsOfIds,
    build_model,
    cut_blocks,
    list_documents,
    wrap_tokenizer,
)
from benchmarks.trainer_peer import build_trainer as build_peer
from maskwright.logs import Record
from maskwright.pretraining.build import build_trainer, resolve_model
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.train.device import keep_freed_memory, product_dtype
from maskwright.train.trainer import Reporter

ROW, SLOTS = 128, 2048
WARMUP = 3
_SHAPE = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4}
_AS_PEERS = {
    "optim": {"name": "adamw", "learning_rate": 1e-3},
    "masking": {"rate": 0.15, "final_rate": 0.15},
}
# Our model in the peer's architecture with its optimizer and masks, and our own recipe.
CONTENDERS: dict[str, dict[str, Any]] = {
    "bert": {"model": {"preset": "bert", "intermediate_size": 1024, **_SHAPE}, **_AS_PEERS},
    "modernbert": {
        "model": {"preset": "modernbert", "intermediate_size": 384, **_SHAPE},
        **_AS_PEERS,
    },
    "tiny": {},
}
PEERS: tuple[Architecture, ...] = ("bert", "modernbert")
THEIRS, OURS, COMPILED, LIMIT = "transformers", "ours", "ours, compiled,", "products of"
PADDED = "transformers, padded to whole rows,"
KINDS = {"packed": (THEIRS, OURS, COMPILED, LIMIT), "sentences": (THEIRS, PADDED, OURS, COMPILED)}


class TickingReporter(Reporter):
    """A reporter that ticks a clock at each training record; the first ones do not count."""

    def __init__(self, warmup: int) -> None:
        self.warmup, self.clock = warmup, Clock(warmup)
        self.tokens: list[int] = []

    def report(self, record: Record, progress: float) -> None:
        if record["split"] == "train":
            self.clock.tick()
            self.tokens.append(record["tokens"])

    @property
    def tokens_per_second(self) -> float:
        return (self.tokens[-1] - self.tokens[self.warmup - 1]) / self.clock.seconds


def configure(name: str, steps: int, precision: str, compiles: bool) -> PretrainConfig:
    """Return the recipe ``tiny`` with what makes it this contender."""
    train = {
        "max_steps": steps,
        "max_minutes": None,
        "batch_tokens": SLOTS,
        "seq_length_schedule": [],
        "precision": precision,
        "compile": "on" if compiles else "off",
        "log_every_steps": 1,
        "num_validations": 1,
    }
    return resolve("tiny", None, {**CONTENDERS[name], "train": train})


def time_fit(config: PretrainConfig, data: PreparedData, reporter: TickingReporter) -> float:
    """Return the tokens a second of a run from step 1, without validations and checkpoints."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer, _ = build_trainer(config, data, Path(scratch))
        trainer.reporter, trainer.checkpoints = reporter, None
        trainer.validate = lambda number, final, is_asked_to_stop: {}
        trainer.fit()
        trainer.prefetcher.close()
    return reporter.tokens_per_second


def time_peer(
    name: Architecture,
    data: PreparedData,
    rows: list[list[int]],
    rows_a_step: int,
    steps: int,
    *,
    bf16: bool,
    pad_to: int | None,
) -> float:
    """Return the tokens a second of `Trainer`, which draws the order of rows from its own seed."""
    torch.manual_seed(0)
    clock, tokenizer = Clock(WARMUP), wrap_tokenizer(data.tokenizer)
    rows = rows[: rows_a_step * steps]
    with tempfile.TemporaryDirectory() as scratch:
        build_peer(
            build_model(name, tokenizer),
            tokenizer,
            RowsOfIds(rows),
            scratch,
            lambda step: clock.tick(),
            pad_to=pad_to,
            max_steps=steps,
            per_device_train_batch_size=rows_a_step,
            learning_rate=1e-3,
            bf16=bf16,
        ).train()
    return sum(map(len, rows)) / len(rows) * rows_a_step * clock.num_steps / clock.seconds


def measure_limit(config: PretrainConfig, data: PreparedData) -> float:
    """Return the tokens a second if a step were its matrix products and nothing else."""
    model = resolve_model(config, data.tokenizer)
    masked = round(SLOTS * (config.masking.rate_at(0.0) + config.masking.rate_at(1.0)) / 2)
    products = list_step(model, SLOTS, ROW, masked)
    dtype = product_dtype(config.train.precision, torch.device("cpu"))
    if config.optim.name == "muon":
        products += list_orthogonalization(model, config.optim.newton_schulz_steps, dtype)
    return SLOTS / sum(product.measure(dtype) for product in products)


def measure_alone(name: str, data: PreparedData, arguments: argparse.Namespace) -> float:
    """Return the tokens a second of a contender, measured in this process."""
    kind, _, architecture = name.rpartition(" ")
    # Steps of padded rows are long, and alike.
    steps = WARMUP + max(1, arguments.steps // (4 if kind == PADDED else 1))
    config = configure(architecture, steps, arguments.precision, kind == COMPILED)
    if kind in (OURS, COMPILED, LIMIT):
        keep_freed_memory()  # as `maskwright pretrain` does
    if kind == LIMIT:
        return measure_limit(config, data)
    if kind in (OURS, COMPILED):
        return time_fit(config, data, TickingReporter(WARMUP))
    if arguments.corpora == ["packed"]:
        rows = cut_blocks(data, SLOTS // ROW * steps)
    else:
        rows = list(islice(list_documents(data, ROW), SLOTS // 8 * steps))
    return time_peer(
        cast(Architecture, architecture),
        data,
        rows,
        round(SLOTS * len(rows) / sum(map(len, rows))),  # as many tokens a step as ours
        steps,
        bf16=arguments.precision == "bf16",
        pad_to=ROW if kind == PADDED else None,
    )


def compare(folder: Path, corpus: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the speeds of all contenders on one corpus, and the ratios."""
    names = [
        f"{kind} {name}"
        for name in CONTENDERS
        for kind in KINDS[corpus]
        if name in PEERS or (kind in (OURS, COMPILED, LIMIT) and corpus == "packed")
    ]
    flags = ["--data", folder, "--corpora", corpus, "--steps", arguments.steps]
    flags += ["--precision", arguments.precision]
    contenders = {n: partial(run_alone, "training-speed", "--alone", n, *flags) for n in names}
    found = race(contenders, arguments.rounds, "tokens/s")
    ratios = {
        f"{mine} over {his}": divide(found[mine], found[his])
        for mine, his in list_pairs()
        if mine in found and his in found
    }
    return {"tokens_per_second": found, "ratios": ratios}


def list_pairs() -> Iterator[tuple[str, str]]:
    """Yield ours and what it is divided by: the peer of its shape, its products; `tiny`: both."""
    for ours in (OURS, COMPILED):
        for name in CONTENDERS:
            for peer in (name,) if name in PEERS else PEERS:
                yield f"{ours} {name}", f"{THEIRS} {peer}"
            yield f"{ours} {name}", f"{PADDED} {name}"
            yield f"{ours} {name}", f"{LIMIT} {name}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--sentences", type=Path, help="its prepared sentences [prepare them]")
    parser.add_argument("--corpora", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each round [20]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="[fp32]")
    parser.add_argument("--alone", metavar="NAME", help="print the tokens/s of one contender")


def main(arguments: argparse.Namespace) -> None:
    if arguments.alone:
        print(measure_alone(arguments.alone, PreparedData(arguments.data), arguments))
        return
    folders = {"packed": arguments.data, "sentences": arguments.sentences}
    measured: dict[str, Any] = {}
    for corpus in arguments.corpora:
        with find_prepared(folders[corpus], corpus == "sentences") as folder:
            measured[corpus] = compare(folder, corpus, arguments)
    conditions = {"precision": arguments.precision, "steps": arguments.steps}
    conditions["threads"] = torch.get_num_threads()
    write_result(f"training-speed-{arguments.precision}", {**conditions, "corpora": measured})
