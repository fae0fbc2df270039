"""Tokens a second in training, beside transformers' Trainer and beside bare matrix products.

    MASKWRIGHT_DATA=… python -m benchmarks.training_speed [--data DATA] [--sentences DATA]

Everything a step needs is in it: loading, masking, forward, backward, optimizer, logging. All are
6 layers of width 256 with 8,192 words, 2,048 slots a step. On packed text the rows are full; on
sentences theirs are padded to the longest of a batch, as `run_mlm.py --line_by_line` does, and ours
hold several. Tokens are counted, not padding. Contenders take turns, in one process; ratios are
medians over the rounds. ``products of``: a step that were its matrix products and nothing else,
each measured by itself at its shape.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import find_prepared, write_result
from benchmarks.products import list_orthogonalisation, list_step
from benchmarks.races import divide, race
from benchmarks.trainer_peer import (
    Architecture,
    Clock,
    RowsOfIds,
    build_model,
    cut_blocks,
    wrap_tokenizer,
)
from benchmarks.trainer_peer import build_trainer as build_peer
from maskwright.commands.assemble import PreparedData, resolve_model
from maskwright.commands.build import build_trainer
from maskwright.commands.config import PretrainConfig, resolve
from maskwright.logs import Record
from maskwright.train.device import product_dtype

ROW, SLOTS = 128, 2048
WARMUP = 3
_SHAPE = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4}
_ADAMW = {"name": "adamw", "learning_rate": 1e-3}
_MASKS = {"rate": 0.15, "final_rate": 0.15}
# What is compared: our model of the same architecture with the same optimizer and masks, and ours.
CONTENDERS: dict[str, dict[str, Any]] = {
    "bert": {
        "model": {"preset": "bert", "intermediate_size": 1024, **_SHAPE},
        "optim": _ADAMW,
        "masking": _MASKS,
    },
    "modernbert": {
        "model": {"preset": "modernbert", "intermediate_size": 384, **_SHAPE},
        "optim": _ADAMW,
        "masking": _MASKS,
    },
    "tiny": {},
}
PEERS: tuple[Architecture, ...] = ("bert", "modernbert")


class TickingReporter:
    """Tells a clock of each record of training; the first ones do not count."""

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
    """The recipe ``tiny`` with what makes it this contender."""
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


def time_fit(
    config: PretrainConfig, data: PreparedData, scratch: Path, reporter: TickingReporter
) -> float:
    """Tokens a second of a run from its first step, without validations and checkpoints."""
    trainer, _ = build_trainer(config, data, scratch)
    trainer.reporter, trainer.checkpoints = reporter, None
    trainer.validate = lambda final, is_asked_to_stop: {}
    trainer.fit()
    trainer.prefetcher.close()
    return reporter.tokens_per_second


def time_ours(config: PretrainConfig, data: PreparedData, scratch: Path) -> float:
    """Tokens a second; every step is a record."""
    return time_fit(config, data, scratch, TickingReporter(WARMUP))


def time_peer(
    name: Architecture,
    data: PreparedData,
    rows: list[list[int]],
    rows_a_step: int,
    steps: int,
    bf16: bool,
) -> float:
    """Tokens a second of `Trainer`, whose order of the rows is drawn from its own seed."""
    torch.manual_seed(0)
    clock = Clock(WARMUP)
    rows = rows[: rows_a_step * steps]
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = wrap_tokenizer(data.tokenizer)
        trainer = build_peer(
            build_model(name, tokenizer),
            tokenizer,
            RowsOfIds(rows),
            scratch,
            lambda step: clock.tick(),
            max_steps=steps,
            per_device_train_batch_size=rows_a_step,
            learning_rate=1e-3,
            bf16=bf16,
        )
        trainer.train()
    return sum(map(len, rows)) / len(rows) * rows_a_step * clock.num_steps / clock.seconds


def cut_sentences(data: PreparedData, count: int) -> list[list[int]]:
    """The first documents, each a sentence, between [CLS] and [SEP]."""
    first, last, rows, start = data.tokenizer.cls_id, data.tokenizer.sep_id, [], 0
    for length in data.train.document_lengths[:count].tolist():
        ids = data.train.tokens(start, start + min(length, ROW - 2)).tolist()
        rows.append([first, *ids, last])
        start += length
    return rows


def compare(
    data: PreparedData, corpus: str, arguments: argparse.Namespace, scratch: Path
) -> dict[str, Any]:
    """All contenders on one corpus, and the ratios."""
    steps, bf16 = arguments.steps + WARMUP, arguments.precision == "bf16"
    packed = corpus == "packed"
    # As many tokens a step, nearly: a sentence has some 27 with [CLS] and [SEP].
    rows_a_step = SLOTS // ROW if packed else SLOTS // 32
    count = rows_a_step * steps
    rows = cut_blocks(data.train, count) if packed else cut_sentences(data, count)
    contenders: dict[str, Callable[[], float]] = {
        f"transformers {name}": partial(time_peer, name, data, rows, rows_a_step, steps, bf16)
        for name in PEERS
    }
    for name in CONTENDERS:
        config = configure(name, steps, arguments.precision, arguments.compile)
        contenders[f"ours {name}"] = partial(time_ours, config, data, scratch)
        if packed:
            contenders[f"products of {name}"] = partial(measure_limit, config, data)
    found = race(contenders, arguments.rounds, "tokens/s")
    ratios = {
        f"{ours} over {theirs}": divide(found[ours], found[theirs])
        for ours, theirs in (
            ("ours bert", "transformers bert"),
            ("ours modernbert", "transformers modernbert"),
            ("ours tiny", "transformers bert"),
            ("ours tiny", "transformers modernbert"),
            *((f"ours {name}", f"products of {name}") for name in CONTENDERS if packed),
        )
    }
    return {"tokens_per_second": found, "ratios": ratios}


def measure_limit(config: PretrainConfig, data: PreparedData) -> float:
    """Tokens a second if a step were its matrix products and nothing else."""
    model = resolve_model(config, data.tokenizer)
    masked = round(SLOTS * (config.masking.rate_at(0.0) + config.masking.rate_at(1.0)) / 2)
    products = list_step(model, SLOTS, ROW, masked)
    if config.optim.name == "muon":
        products += list_orthogonalisation(model, config.optim.newton_schulz_steps)
    dtype = product_dtype(config.train.precision, torch.device("cpu"))
    return SLOTS / sum(product.measure(dtype) for product in products)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--sentences", type=Path, help="its sentences, prepared already")
    parser.add_argument("--corpora", nargs="+", default=["packed", "sentences"])
    parser.add_argument("--steps", type=int, default=20, help="timed ones, of each round [20]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of all")
    parser.add_argument("--compile", action="store_true", help="ours; warming up takes minutes")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    folders = {"packed": arguments.data, "sentences": arguments.sentences}
    measured: dict[str, Any] = {}
    for corpus in arguments.corpora:
        with (
            find_prepared(folders[corpus], corpus == "sentences") as folder,
            tempfile.TemporaryDirectory() as scratch,
        ):
            measured[corpus] = compare(PreparedData(folder), corpus, arguments, Path(scratch))
    conditions = {"precision": arguments.precision, "compiled": arguments.compile}
    conditions |= {"steps": arguments.steps, "threads": torch.get_num_threads()}
    write_result(f"training-speed-{arguments.precision}", {**conditions, "corpora": measured})
    for corpus, figures in measured.items():
        for name, ratio in figures["ratios"].items():
            print(f"{corpus:<10} {name:<48} {ratio['median']:.2f}")


if __name__ == "__main__":
    main()
