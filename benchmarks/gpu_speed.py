"""Compare GPU training with transformers' Trainer and ModernBERT: tokens per second, and MFU.

Both compute in bf16 on the same text, in rows of one length without padding, with the same number
of tokens per step and the same architecture: ModernBERT with sdpa there, ours compiled with varlen
attention. A step includes everything that it needs. MFU is the share of the GPU's
dense bf16 peak. It counts the matrix products that our step needs, with the logits of masked tokens
only; the peer gets the same FLOPs per token, although it computes the logits of all tokens.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.common import add_data, divide, find_prepared, race, write_result
from benchmarks.trainer_peer import (
    RowsOfIds,
    build_model,
    build_trainer,
    cut_blocks,
    wrap_tokenizer,
)
from benchmarks.training_speed import TickingReporter, time_fit
from maskwright.config import merge
from maskwright.pretraining.build import objective_of, resolve_model
from maskwright.pretraining.gpus import find_card
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve

MODELS = ("tiny", "small", "base", "babylm-10m")
_SAME = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
TICK = 5  # steps between two looks at the clock, as a look makes the host wait


@dataclass(frozen=True)
class Setting:
    """What both train and for how long; `warmup` and `steps` are multiples of a tick."""

    recipe: str
    row_length: int
    step_tokens: int
    warmup: int
    steps: int
    device: str

    def configure(self, over: Mapping[str, Any] | None = None) -> PretrainConfig:
        """Return the configuration of our side, with other values `over` it."""
        toy = self.device == "cpu"
        model = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        train = {
            "max_steps": self.warmup + self.steps,
            "max_minutes": None,
            "batch_tokens": self.step_tokens,
            "batch_tokens_schedule": [],
            "micro_batch_tokens": None,
            "seq_length_schedule": [],
            "precision": "fp32" if toy else "bf16",
            "compile": "off" if toy else "on",
            "device": self.device,
            "log_every_steps": TICK,
            "num_validations": 1,
        }
        values: dict[str, Any] = {"train": train, "data": {"max_seq_length": self.row_length}}
        values["model"] = {"preset": "modernbert", **(model if toy else {})}
        return resolve(self.recipe, None, merge(values, over or {}))

    @property
    def rows_a_step(self) -> int:
        return self.step_tokens // self.row_length


def _free_memory() -> None:
    """Free the GPU memory of the contender before, whose parts refer to each other."""
    gc.collect()
    torch.cuda.empty_cache()


def time_ours(setting: Setting, data: PreparedData) -> float:
    """Return our tokens a second."""
    _free_memory()
    return time_fit(setting.configure(), data, TickingReporter(setting.warmup // TICK))


def time_peer(setting: Setting, data: PreparedData) -> float:
    """Return the peer's tokens a second; all rows are full."""
    _free_memory()
    tokenizer = wrap_tokenizer(data.tokenizer)
    resolved = resolve_model(setting.configure(), data.tokenizer)
    shape = {name: getattr(resolved, name) for name in (*_SAME, "local_attention")}
    shape["layer_types"] = list(resolved.layer_types)
    shape["max_position_embeddings"] = setting.row_length
    last, on_gpu, ends = setting.warmup + setting.steps, setting.device == "cuda", {}

    def on_step(step: int) -> bool:
        if step in (setting.warmup, last):
            if on_gpu:
                torch.cuda.synchronize()
            ends[step] = time.perf_counter()
        return False

    rows = cut_blocks(data, setting.rows_a_step * last, setting.row_length)
    with tempfile.TemporaryDirectory() as scratch:
        build_trainer(
            build_model("modernbert", tokenizer, **shape),
            tokenizer,
            RowsOfIds(rows),
            scratch,
            on_step,
            max_steps=last,
            per_device_train_batch_size=setting.rows_a_step,
            learning_rate=1e-3,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            dataloader_num_workers=4 if on_gpu else 0,
        ).train()
    return setting.step_tokens * setting.steps / (ends[last] - ends[setting.warmup])


def find_peak(device: str) -> tuple[str, float | None]:
    """Return the name of the device, and its dense bf16 peak if that is known."""
    if device == "cpu":
        return "cpu", None
    name = torch.cuda.get_device_name()
    card = find_card(name)
    return name, card.peak_flops if card else None


def compare(setting: Setting, data: PreparedData, rounds: int) -> dict[str, Any]:
    """Return the speeds of ours and the peer in turns, the ratio and the share of the peak."""
    ours, theirs = (partial(measure, setting, data) for measure in (time_ours, time_peer))
    found = race({"ours": ours, "transformers": theirs}, rounds, "tokens/s")
    config, (_, peak) = setting.configure(), find_peak(setting.device)
    share, model = config.masking.predicted_share_at(0.5), resolve_model(config, data.tokenizer)
    flops = objective_of(config).count_flops_per_token(model, setting.row_length, share)
    median = {name: statistics.median(speeds) for name, speeds in found.items()}
    mfu = {name: round(s * flops / peak, 4) for name, s in median.items()} if peak else None
    return {
        "recipe": setting.recipe,
        "row_length": setting.row_length,
        "step_tokens": setting.step_tokens,
        "flops_per_token": flops,
        "tokens_per_second": found,
        "ratio": divide(found["ours"], found["transformers"]),
        "model_flops_utilisation": mfu,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024])
    parser.add_argument("--step-tokens", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help="run at toy size on a CPU, no result")


def main(arguments: argparse.Namespace) -> None:
    if not arguments.toy and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --toy shows on a CPU that the program works")
    device, tokens, warmup, steps = "cuda", arguments.step_tokens, 4 * TICK, 8 * TICK
    if arguments.toy:
        device, tokens, warmup, steps = "cpu", 1024, TICK, TICK
    measured: list[dict[str, Any]] = []
    with find_prepared(arguments.data) as folder:
        data = PreparedData(folder)
        for recipe in arguments.models:
            for length in arguments.lengths:
                setting = Setting(recipe, length, tokens, warmup, steps, device)
                measured.append(compare(setting, data, arguments.rounds))
                print(measured[-1], flush=True)
                if not arguments.toy:  # after each, since the next one may fail
                    name, peak = find_peak(device)
                    found = {"device": name, "peak_flops": peak, "models": measured}
                    write_result("gpu-speed", found)
