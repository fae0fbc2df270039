"""The estimated memory of a training step, beside peaks that were measured."""

from dataclasses import replace

import pytest
import torch

from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters
from maskwright.pretraining.build import resolve_model
from maskwright.pretraining.micro_batch import estimate_memory
from maskwright.runs.config import resolve
from tests.model.helpers import tiny_config

GIB = 2**30


def model_of(recipe: str) -> EncoderConfig:
    return resolve_model(resolve(recipe, None, {"tokenizer": {"vocab_size": 16384}}))


# torch.cuda.max_memory_allocated on one H200: bf16, blocks compiled, Muon, masks of 30 %.
@pytest.mark.parametrize(
    ("recipe", "tokens", "length", "peak"),
    [
        ("babylm-10m", 65536, 512, 15.7),
        ("babylm-10m", 16384, 512, 4.2),
        ("base", 65536, 1024, 37.0),
    ],
)
def test_estimates_are_near_the_measured_peaks(
    recipe: str, tokens: int, length: int, peak: float
) -> None:
    found = estimate_memory(model_of(recipe), tokens, length, 0.3, "muon")
    assert found.total / GIB == pytest.approx(peak, rel=0.15)


def test_parts_are_those_of_the_parameters() -> None:
    model = model_of("babylm-10m")
    parts = count_parameters(model)
    found = estimate_memory(model, 1024, 512, 0.3, "adamw", torch.float32)
    assert (found.weights, found.gradients) == (4 * parts.total, 4 * parts.total)
    assert found.optimizer == 8 * parts.total
    muon = estimate_memory(model, 1024, 512, 0.3, "muon", torch.float32)
    assert muon.optimizer == found.optimizer - 4 * parts.blocks
    assert found.total == found.weights + found.gradients + found.optimizer + found.activations


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert", "deberta-v2"])
def test_activations_are_linear_in_tokens_and_grow_with_everything(preset: str) -> None:
    config = tiny_config(preset=preset)
    one = estimate_memory(config, 1, 16, 0.15).activations
    assert estimate_memory(config, 777, 16, 0.15).activations == pytest.approx(777 * one)
    assert estimate_memory(config, 1, 32, 0.15).activations >= one
    assert estimate_memory(config, 1, 16, 0.15, dtype=torch.float32).activations > one
    assert estimate_memory(config, 1, 16, 0.3).activations > one
    larger = replace(config, vocab_size=10_000 * config.vocab_size)
    assert estimate_memory(larger, 1, 16, 0.15).activations > 100 * one


def test_checkpointing_stores_little_of_a_deep_model() -> None:
    whole, again = (
        estimate_memory(model_of("base"), 65536, 1024, 0.3, "muon", checkpointing=checkpointing)
        for checkpointing in (False, True)
    )
    assert again.activations < 0.4 * whole.activations
    assert again.weights == whole.weights
