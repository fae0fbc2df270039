"""The sizes of `auto`: which one a budget and a text pay for, and what goes with a size.

Each of `model.sizes` is stated with the training, in petaFLOP, from which on it learns more than
the size below (docs/experiments.md). A text that is read more than `COUNTED_EPOCHS` times counts no
further: a larger model would learn it by heart. So one recipe serves ten minutes of a laptop and a
day of a GPU.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from maskwright.config import from_mapping, to_mapping
from maskwright.formatting import show_duration
from maskwright.model.config import SIZE_FIELDS, ModelConfig
from maskwright.runs.config import DEFAULT_RECIPE, PretrainConfig, resolve

COUNTED_EPOCHS = 20
# From this width on, the values of the recipe `wide` replace those of `auto`.
_WIDE, _WIDE_RECIPE, _NARROW_RECIPE = 384, "wide", DEFAULT_RECIPE
_SECTIONS = ("data", "masking", "optim", "train")
_RATES = ("learning_rate", "muon_learning_rate")
# A step that takes a GPU so long at its peak keeps it four fifths as busy as larger ones: 12 layers
# of width 384 and 16,384 tokens, 2.5 ms at the peak, reach 0.77 (benchmarks gpu-variants).
_BUSY_SECONDS, _UPDATES = 0.003, 5
_FEWEST_STEPS, _FEWEST_TOKENS = 2000, 8192


@dataclass(frozen=True)
class Size:
    """A size with the petaFLOP from which on it pays."""

    least: float
    width: int
    layers: int

    def __str__(self) -> str:
        return f"width {self.width}, layers {self.layers}"


@dataclass(frozen=True)
class Pay:
    """The petaFLOP that a run of a size would compute, of which `counted` in the first epochs.

    Attributes:
        seconds: the time of the run.
    """

    counted: float
    whole: float
    seconds: float

    @classmethod
    def of(
        cls, tokens: float, epoch_tokens: float | None, flops_per_token: float, seconds: float
    ) -> "Pay":
        """Return them for a number of tokens; the text is unknown if `epoch_tokens` is None."""
        counted = min(tokens, COUNTED_EPOCHS * (epoch_tokens or math.inf))
        return cls(counted * flops_per_token / 1e15, tokens * flops_per_token / 1e15, seconds)


def pick_size(sizes: Sequence[Size], pay: Callable[[Size], Pay], where: str) -> tuple[Size, str]:
    """Return the largest size that gets its petaFLOP, and why.

    Args:
        where: the device, for the reason.
    """
    chosen, paid = sizes[0], pay(sizes[0])
    for size in sizes[1:]:
        found = pay(size)
        if found.counted < size.least:
            return chosen, _explain(size, found, where)
        chosen, paid = size, found
    if paid.counted == math.inf:  # a dry run: a run knows its tokens
        return chosen, "if its text has epochs enough, which is known once it is prepared"
    return chosen, "model.sizes has no larger one"


def _explain(size: Size, found: Pay, where: str) -> str:
    """Return what a size lacks: time, or text."""
    if found.whole >= size.least:
        times = size.least / found.counted
        return (
            f"{size} needs {times:.2g} times as much text, as no more than {COUNTED_EPOCHS} epochs "
            "count"
        )
    if not found.whole:
        return f"{size} needs a larger budget"
    seconds = size.least / found.whole * found.seconds
    return f"about {show_duration(seconds)} on {where} would buy {size}"


def set_size(model: ModelConfig, width: int, layers: int) -> ModelConfig:
    """Return the model with this size: heads of 64, an MLP three times as wide."""
    return replace(
        model,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=None,
        intermediate_size=3 * width,
    )


def find_recipe(width: int) -> str:
    """Return the recipe whose values go with a width."""
    return _WIDE_RECIPE if width >= _WIDE else _NARROW_RECIPE


def scale_rates(width: int) -> dict[str, float]:
    """Return the learning rates that go with a width, if they are not those of its recipe.

    They fall with the width, from those measured at 384 (Yang et al., "Tuning Large Neural Networks
    via Zero-Shot Hyperparameter Transfer", 2022).
    """
    optim = resolve(_WIDE_RECIPE).optim
    factor = _WIDE / width
    scaled = {name: float(f"{getattr(optim, name) * factor:.6g}") for name in _RATES}
    return scaled if factor < 1 else {}


def set_rung(config: PretrainConfig, size: Size) -> PretrainConfig:
    """Return the configuration with this size and what goes with it.

    Values that differ from those of `auto` were set by the user and stay.
    """
    config = replace(config, model=set_size(config.model, size.width, size.layers))
    if size.width < _WIDE:
        return config
    plain, narrow, wide = map(to_mapping, (config, resolve(_NARROW_RECIPE), resolve(_WIDE_RECIPE)))
    wide["optim"] |= scale_rates(size.width)
    for section in _SECTIONS:
        for name, value in wide[section].items():
            if plain[section][name] == narrow[section][name]:
                plain[section][name] = value
    return from_mapping(PretrainConfig, plain)


def set_vocabulary(config: PretrainConfig, width: int) -> PretrainConfig:
    """Return the configuration with the vocabulary size that goes with a width.

    A size that differs from that of `auto` was set by the user and stays.
    """
    return _replace_vocab_size(config, resolve(find_recipe(width)).tokenizer.vocab_size)


def _replace_vocab_size(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    tokenizer = config.tokenizer
    if tokenizer.path or tokenizer.vocab_size != resolve(_NARROW_RECIPE).tokenizer.vocab_size:
        return config
    return replace(config, tokenizer=replace(tokenizer, vocab_size=vocab_size))


def keep_rung(config: PretrainConfig, begun: PretrainConfig) -> PretrainConfig:
    """Return the configuration with the size of a run that began, and what goes with it."""
    size = Size(0.0, begun.model.hidden_size, begun.model.num_hidden_layers)
    kept = set_rung(config, size)
    chosen = {name: getattr(begun.model, name) for name in SIZE_FIELDS}
    kept = replace(kept, model=replace(kept.model, **chosen))
    kept = _replace_vocab_size(kept, begun.tokenizer.vocab_size)
    if kept.train.batch_tokens == config.train.batch_tokens:
        return kept
    return replace(kept, train=replace(kept.train, batch_tokens=begun.train.batch_tokens))


def fill_card(
    config: PretrainConfig,
    peak_flops: float,
    flops_per_token: float,
    update_flops: float,
    tokens: float,
) -> PretrainConfig:
    """Return the configuration with the fewest tokens a step that keep a card busy.

    They are a power of two, and no more than a run of 2,000 steps allows: larger steps learn less
    from each token (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018).

    Args:
        peak_flops: FLOP/s of all cards together.
        update_flops: operations of an update, which should be a fifth of a step at most.
        tokens: the tokens of the run.
    """
    wide = resolve(_WIDE_RECIPE).train.batch_tokens
    if config.model.hidden_size < _WIDE or config.train.batch_tokens != wide:
        return config
    busy = (_BUSY_SECONDS * peak_flops + _UPDATES * update_flops) / flops_per_token
    most = max(_FEWEST_TOKENS, tokens / _FEWEST_STEPS)
    count = min(2 ** math.ceil(math.log2(busy)), 2 ** math.floor(math.log2(most)))
    return replace(config, train=replace(config.train, batch_tokens=max(_FEWEST_TOKENS, count)))
