"""What a budget pays for on GPUs of a table: size, time and memory, without one at hand."""

from collections.abc import Callable

import torch

from maskwright.distributed.world import ALONE, World
from maskwright.model.config import EncoderConfig
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.budget import (
    choose_size,
    count_all_flops,
    count_flops_per_token,
    count_update_flops,
)
from maskwright.pretraining.rungs import fill_card
from maskwright.runs.config import PretrainConfig
from maskwright.train.device import choose_device
from maskwright.train.devices import Cards, find_card, own_tokens

Resolve = Callable[[PretrainConfig], EncoderConfig]  # returns the architecture of a configuration


def choose_size_here(
    config: PretrainConfig,
    resolve: Resolve,
    epoch_tokens: float | None,
    world: World = ALONE,
    cards: Cards | None = None,
) -> tuple[PretrainConfig, str]:
    """Return the configuration with the size that its budget pays for on `cards`, or here, and why.

    The speed of a known card is that of the table, compiled; that of other devices is measured.
    Without ``model.sizes`` nothing changes.
    """
    known = cards or find_cards_here(config, world)
    if known is None:
        return choose_size(config, resolve, epoch_tokens, world)

    def time_step(sized: PretrainConfig, model: EncoderConfig) -> float:
        return estimate_step_seconds(known, sized, model)[0]

    peak = known.card.peak_flops * known.count
    speed = (f"{known}, computed", peak, time_step)
    return choose_size(config, resolve, epoch_tokens, known=speed)


def find_cards_here(config: PretrainConfig, world: World = ALONE) -> Cards | None:
    """Return the cards of a run on this machine; None if it has others than those of the table."""
    device = choose_device(config.train.device, world.local_rank)
    card = find_card(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if card is None else Cards(card, world.size)


def fill_cards(
    cards: Cards, config: PretrainConfig, model: EncoderConfig, epoch_tokens: float | None
) -> PretrainConfig:
    """Return the configuration with the fewest tokens a step that keep the cards busy."""
    tokens = count_tokens(cards, config, model, epoch_tokens)
    peak, update = cards.card.peak_flops * cards.count, count_update_flops(config, model)
    return fill_card(config, peak, count_flops_per_token(config, model), update, tokens)


def count_tokens(
    cards: Cards, config: PretrainConfig, model: EncoderConfig, epoch_tokens: float | None
) -> float:
    """Return the tokens that the budget pays for on `cards`; infinite if they are unknown."""
    seconds, _ = estimate_step_seconds(cards, config, model)
    steps = config.train.estimate_seconds(seconds, epoch_tokens) / seconds
    return steps * config.train.mean_batch_tokens


def estimate_step_seconds(
    cards: Cards,
    config: PretrainConfig,
    model: EncoderConfig,
    teacher: MaskedLanguageModel | None = None,
) -> tuple[float, str]:
    """Return the seconds of a mean step on `cards`, and how they are known."""
    seconds, is_measured = cards.estimate_step_seconds(
        model,
        config.train.mean_batch_tokens,
        count_all_flops(config, model, teacher),
        own_tokens(config.train, cards.count),
    )
    if is_measured and teacher is None:
        return seconds, f"measured as the share of the peak of one {cards}"
    return seconds, "computed from the speed of one H200"


def describe_cards(cards: Cards) -> str:
    """Return the line of a dry run about the cards."""
    return (
        f"device       {cards}, {cards.card.peak_flops / 1e12:,.0f} TFLOP/s a card in bf16 "
        "(data sheet); no card is used now"
    )
