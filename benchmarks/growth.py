"""How a step grows with the model and with its rows, and preparation with its text.

    MASKWRIGHT_DATA=… python -m benchmarks.growth

A step of the recipe ``tiny`` on random tokens, uncompiled, one dimension of the model changed at a
time; and `prepare` of so many megabytes of English Wikipedia, with a tokenizer that there is
already. All sizes take turns. `slope` is that of the straight line through the logarithms of the
seconds over those of the work (floating-point operations, bytes): 1 is linear.
"""

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import write_result
from benchmarks.preparation_speed import run, write_text
from benchmarks.products import list_orthogonalisation
from benchmarks.races import race
from maskwright.model.config import EncoderConfig
from maskwright.pretraining.prepared_data import guess_model, objective_of
from maskwright.pretraining.step_speed import measure_step_seconds
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from maskwright.train.device import keep_freed_memory

MODELS: dict[str, tuple[int, ...]] = {
    "hidden_size": (128, 256, 384, 512, 768),
    "num_hidden_layers": (2, 4, 8, 16),
    "max_seq_length": (64, 128, 256, 512, 1024),
}
MEGABYTES = (10, 20, 40, 80, 150)
_VOCAB_SIZE = 8192


def configure(dimension: str, size: int) -> tuple[PretrainConfig, EncoderConfig]:
    """The recipe ``tiny`` with one dimension changed, and its architecture."""
    values: dict[str, Any] = {"train": {"seq_length_schedule": [], "batch_tokens": 2048}}
    if dimension == "max_seq_length":
        values["data"] = {dimension: size}
    else:
        values["model"] = {dimension: size}
    if dimension == "hidden_size":
        values["model"] |= {"num_attention_heads": size // 64, "intermediate_size": size * 11 // 4}
    config = resolve("tiny", None, values)
    return config, guess_model(config)


def time_step(config: PretrainConfig, model: EncoderConfig) -> float:
    """Milliseconds of a step, all of its rows."""
    return 1e3 * measure_step_seconds(config, model, torch.device("cpu"), timed_flops=math.inf)


def count_work(config: PretrainConfig, model: EncoderConfig) -> float:
    """Floating-point operations of a step, Muon's orthogonalisation included."""
    share = config.masking.predicted_share_at(0.5)
    length = config.data.max_seq_length
    flops = objective_of(config).count_flops_per_token(model, length, share)
    iterations = config.optim.newton_schulz_steps
    products = list_orthogonalisation(model, iterations, torch.float32)
    return flops * config.train.mean_batch_tokens + sum(product.flops for product in products)


def fit_slope(work: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of ``seconds ~ work ** p``, by least squares."""
    logs = [*map(math.log, work)], [*map(math.log, seconds)]
    return round(statistics.linear_regression(*logs).slope, 3)


def grow_models(rounds: int) -> dict[str, Any]:
    """Seconds of a step by each dimension."""
    sizes = [(dimension, size) for dimension, values in MODELS.items() for size in values]
    configs = {f"{dimension} {size}": configure(dimension, size) for dimension, size in sizes}
    found = race({name: partial(time_step, *c) for name, c in configs.items()}, rounds, "ms")
    grown: dict[str, Any] = {}
    for dimension, values in MODELS.items():
        work = [count_work(*configs[f"{dimension} {size}"]) for size in values]
        seconds = [statistics.median(found[f"{dimension} {size}"]) / 1e3 for size in values]
        grown[dimension] = {
            "sizes": values,
            "work": work,
            "seconds": seconds,
            "slope": fit_slope(work, seconds),
        }
    return grown


def grow_text(rounds: int) -> dict[str, Any]:
    """Seconds of `prepare` by the size of the text."""
    with tempfile.TemporaryDirectory() as name:
        scratch, tokenizer, out = Path(name), Path(name) / "tokenizer", Path(name) / "out"
        texts = {size: scratch / f"{size}.txt" for size in MEGABYTES}
        work = [write_text(path, size) for size, path in texts.items()]
        smallest = texts[MEGABYTES[0]].read_text(encoding="utf-8")
        trained = train_tokenizer([smallest], TokenizerConfig(vocab_size=_VOCAB_SIZE))
        trained.save(tokenizer)
        prepare = [sys.executable, "-m", "maskwright", "prepare", "--out", str(out)]
        prepare += ["--tokenizer.path", str(tokenizer)]
        contenders = {
            f"{size} MB": partial(run, [*prepare, str(path)], out, count, [])
            for (size, path), count in zip(texts.items(), work, strict=True)
        }
        found = race(contenders, rounds, "MB/s")
    rates = [statistics.median(found[f"{size} MB"]) for size in MEGABYTES]
    seconds = [count / 1e6 / rate for count, rate in zip(work, rates, strict=True)]
    return {
        "sizes": MEGABYTES, "work": work, "seconds": seconds, "slope": fit_slope(work, seconds)
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    keep_freed_memory()  # as `maskwright pretrain` does
    grown = {**grow_models(arguments.rounds), "text_megabytes": grow_text(arguments.rounds)}
    write_result("growth", {"threads": torch.get_num_threads(), "grown": grown})
    for name, figures in grown.items():
        print(f"{name:<20} slope {figures['slope']:.2f}")


if __name__ == "__main__":
    main()
