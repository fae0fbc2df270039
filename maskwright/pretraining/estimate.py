"""What a budget pays for on GPUs of a table: size, time and memory, without one at hand."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from maskwright.model.config import EncoderConfig, parse_sizes
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining.budget import count_all_flops, count_flops_per_token, set_size
from maskwright.runs.config import PretrainConfig
from maskwright.train.devices import Cards, own_tokens

# More passes over a text do not count when a size is chosen: a larger model learns it by heart.
COUNTED_EPOCHS = 20

Resolve = Callable[[PretrainConfig], EncoderConfig]  # returns the architecture of a configuration


def pick_size(
    sizes: Sequence[tuple[float, int, int]], petaflops: Callable[[int, int], float]
) -> tuple[int, int, float]:
    """Return width and layers of the largest size that gets its petaFLOP, and what it gets.

    Args:
        sizes: as of `parse_sizes`.
        petaflops: returns the training that a size would get, from width and layers.
    """
    (_, *chosen), *larger = sizes
    paid = petaflops(*chosen)
    for least, *size in larger:
        found = petaflops(*size)
        if found < least:
            break
        chosen, paid = size, found
    width, layers = chosen
    return width, layers, paid


def choose_size_for(
    cards: Cards, config: PretrainConfig, resolve: Resolve, epoch_tokens: float | None
) -> tuple[PretrainConfig, str]:
    """Return the configuration with the size that its budget pays for on `cards`, and why.

    Without ``model.sizes`` nothing changes.
    """
    sizes = parse_sizes(config.model.sizes)
    if not sizes:
        return config, ""

    def set_to(width: int, layers: int) -> PretrainConfig:
        return replace(config, model=set_size(config.model, width, layers))

    def petaflops(width: int, layers: int) -> float:
        return count_petaflops(cards, set_to(width, layers), resolve, epoch_tokens)

    width, layers, paid = pick_size(sizes, petaflops)
    reason = f"the budget pays for {paid:.3g} petaFLOP of training on {cards}, computed"
    if paid == math.inf:
        reason = "if its text has epochs enough, which is known once it is prepared"
    return set_to(width, layers), f"width {width}, layers {layers}: {reason}"


def count_petaflops(
    cards: Cards, config: PretrainConfig, resolve: Resolve, epoch_tokens: float | None
) -> float:
    """Return what a run would compute on `cards` in its first `COUNTED_EPOCHS`, in petaFLOP."""
    model = resolve(config)
    tokens = count_tokens(cards, config, model, epoch_tokens)
    if epoch_tokens:
        tokens = min(tokens, COUNTED_EPOCHS * epoch_tokens)
    return tokens * count_flops_per_token(config, model) / 1e15


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
        f"device       {cards}, {cards.card.peak_flops / 1e12:,.0f} TFLOP/s in bf16 a card (data sheet); "
        "no card is used now"
    )
