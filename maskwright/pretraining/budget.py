"""The time of a step and the size of the model that a budget pays for, here or on a known GPU.

A step is measured on random tokens: no text is needed to know its time. For a named GPU, size, time
and memory are computed without one at hand.

Each of `model.sizes` is stated with the training, in petaFLOP, from which on it learns more
than the size below (research/experiments.md). A text that is read more than `COUNTED_EPOCHS` times
counts no further: a larger model would learn it by heart. So one recipe serves ten minutes of a
laptop and a day of a GPU.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from maskwright.corpus.sources import Source
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import ALONE, World
from maskwright.formatting import count_noun, show_duration
from maskwright.model.config import EncoderConfig, parse_sizes
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.flops import count_parameters
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.optim.build import build_optimizers
from maskwright.pretraining.build import (
    build_loss,
    build_schedule,
    load_random_step,
    objective_of,
    resolve_model,
)
from maskwright.pretraining.gpus import Cards, find_card, own_tokens
from maskwright.pretraining.sizes import (
    WIDE,
    Size,
    adopt_size,
    find_recipe,
    may_fill_step,
    set_batch_tokens,
    set_vocab_size,
)
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.settled import Settled
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.config import TrainConfig
from maskwright.train.device import choose_device, product_dtype
from maskwright.train.step import clip_gradients, compute_gradients, count_predictions

COUNTED_EPOCHS = 20
# A step that takes a GPU so long at its peak keeps it four fifths as busy as larger ones: 12 layers
# of width 384 and 16,384 tokens, 2.5 ms at the peak, reach 0.77 (benchmarks gpu-variants).
_BUSY_SECONDS, _UPDATES = 0.003, 5
_MIN_STEPS, _MIN_TOKENS = 2000, 8192


class Pay(NamedTuple):
    """The petaFLOP that a run of a size would compute, of which `counted` in the first epochs."""

    counted: float
    whole: float
    seconds: float  # of the run


def count_pay(
    tokens: float, epoch_tokens: float | None, flops_per_token: float, seconds: float
) -> Pay:
    """Return the pay of a number of tokens; the text is unknown if `epoch_tokens` is None."""
    counted = min(tokens, COUNTED_EPOCHS * (epoch_tokens or math.inf))
    return Pay(counted * flops_per_token / 1e15, tokens * flops_per_token / 1e15, seconds)


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


def fill_step(peak_flops: float, flops_per_token: float, update_flops: float, tokens: float) -> int:
    """Return the fewest tokens of a step that keep the device busy.

    They are a power of two, and no more than a run of 2,000 steps allows: larger steps learn less
    from each token (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018).

    Args:
        peak_flops: FLOP/s of all cards together.
        update_flops: operations of an update, which should be a fifth of a step at most.
        tokens: the tokens of the run.
    """
    busy = (_BUSY_SECONDS * peak_flops + _UPDATES * update_flops) / flops_per_token
    most = max(_MIN_TOKENS, tokens / _MIN_STEPS)
    count = min(2 ** math.ceil(math.log2(busy)), 2 ** math.floor(math.log2(most)))
    return max(_MIN_TOKENS, count)


def count_tokens(train: TrainConfig, step_seconds: float, epoch_tokens: float | None) -> float:
    """Return the tokens that the budget pays for, padding included; infinite if unknown."""
    seconds = train.estimate_seconds(step_seconds, epoch_tokens)
    return seconds / step_seconds * train.mean_batch_tokens


def count_flops(
    config: PretrainConfig, model: EncoderConfig, teacher: MaskedLanguageModel | None = None
) -> float:
    """Return the operations of a token at half of the run, where candidates may be few.

    A teacher has no backward pass.
    """
    size = config.train.num_candidates_at(0.5) or model.vocab_size
    length = config.train.seq_length_at(0.5, config.data.max_seq_length)
    share = config.masking.predicted_share_at(0.5)
    sized = replace(model, vocab_size=min(size, model.vocab_size))
    own = objective_of(config).count_flops_per_token(sized, length, share)
    return own + (count_flops(config, teacher.config) / 3 if teacher else 0.0)


def count_update_flops(config: PretrainConfig, model: EncoderConfig) -> float:
    """Return the operations of Muon's update: three products of a matrix and its Gram matrix."""
    steps = config.optim.newton_schulz_steps if config.optim.name == "muon" else 0
    return 6 * steps * model.hidden_size * count_parameters(model).blocks


_TIMED = 3
_TIMED_SECONDS = 1.0  # then no further step is timed
# Rows enough to keep the device busy, and no more.
_TIMED_FLOPS = {"cpu": 1e10, "cuda": 2e13}
# On a CPU: if a row and an update take more, one layer is measured, on short rows.
_WHOLE_FLOPS, _PROBED_LENGTH, _PROBED_VOCABULARY = 5e10, 128, 2048
_BRIEFLY = {"cpu": 5e9, "cuda": 2e12}  # for each size that is tried: less than a second


def time_step(
    config: PretrainConfig,
    model: EncoderConfig,
    world: World = ALONE,
    cards: Cards | None = None,
    teacher: MaskedLanguageModel | None = None,
) -> tuple[float, str]:
    """Return the seconds of a step that all ranks share, and how they are known.

    Those of known cards are computed, of `cards` or of this machine; rank 0 measures other devices.
    """
    if cards := cards or find_cards_here(config, world):
        return time_on_cards(cards, config, model, teacher)
    device = choose_device(config.train.device, world.local_rank)
    measured = world.text_from_first(
        lambda: repr(measure_step_seconds(config, model, device, teacher=teacher))
    )
    is_whole = is_measured_whole(config, model, device, teacher)
    how = "a few rows of random tokens" if is_whole else "one layer and scaled by FLOPs"
    ranks = f" by one of {world.size} ranks" if world.size > 1 else ""
    return float(measured) / world.size, f"measured on {how}{ranks}, not compiled"


def time_on_cards(
    cards: Cards,
    config: PretrainConfig,
    model: EncoderConfig,
    teacher: MaskedLanguageModel | None = None,
) -> tuple[float, str]:
    """Return the seconds of a mean step on `cards`, and how they are known."""
    tokens, flops = config.train.mean_batch_tokens, count_flops(config, model, teacher)
    in_pass = own_tokens(config.train, cards.count)
    seconds, is_measured = cards.time_step(model.hidden_size, tokens, flops, in_pass)
    if is_measured and teacher is None:
        return seconds, f"measured as the share of the peak of one {cards}"
    return seconds, "computed from the speed of one H200"


def measure_step_seconds(
    config: PretrainConfig,
    model_config: EncoderConfig,
    device: torch.device,
    timed_flops: float | None = None,
    teacher: MaskedLanguageModel | None = None,
) -> float:
    """Return the seconds of a mean step, uncompiled, from a few rows as at half of the run.

    Of a model that is large for a CPU, one layer is measured, and the rest is scaled by FLOPs.

    Args:
        timed_flops: floating-point operations that the few rows take; none: what suits the device.
        teacher: the model that the step also runs.
    """
    timed_flops = timed_flops or _TIMED_FLOPS.get(device.type, 1e10)
    if not is_measured_whole(config, model_config, device, teacher):
        probe, layer = _shrink(config, model_config)
        seconds, _, tokens = _time_rows(probe, layer, device, timed_flops)
        whole = count_flops(config, model_config, teacher) * config.train.mean_batch_tokens
        flops = whole + count_update_flops(config, model_config)
        return flops / (count_flops(probe, layer) * tokens / seconds)
    seconds, stepping, tokens = _time_rows(config, model_config, device, timed_flops, teacher)
    return seconds * config.train.mean_batch_tokens / tokens + stepping


def _shrink(config: PretrainConfig, model: EncoderConfig) -> tuple[PretrainConfig, EncoderConfig]:
    """Return one layer of a model, for few tokens, and short rows for it without Muon."""
    data = replace(config.data, max_seq_length=min(_PROBED_LENGTH, config.data.max_seq_length))
    schedules = {"seq_length_schedule": (), "valid_seq_length": None, "num_candidates": 0}
    train = replace(config.train, **schedules)
    optim = replace(config.optim, name="adamw")
    layer = replace(
        model,
        num_hidden_layers=1,
        layer_types=model.layer_types[:1],
        vocab_size=min(_PROBED_VOCABULARY, model.vocab_size),
        pad_token_id=0,
    )
    return replace(config, data=data, train=train, optim=optim), layer


def is_measured_whole(
    config: PretrainConfig,
    model: EncoderConfig,
    device: torch.device,
    teacher: MaskedLanguageModel | None = None,
) -> bool:
    """Return False if a row and an update of all layers would take a CPU seconds or minutes."""
    length = config.train.seq_length_at(0.5, config.data.max_seq_length)
    flops = count_flops(config, model, teacher) * length + count_update_flops(config, model)
    return device.type != "cpu" or flops <= _WHOLE_FLOPS


def _time_rows(
    config: PretrainConfig,
    model_config: EncoderConfig,
    device: torch.device,
    timed_flops: float,
    teacher: MaskedLanguageModel | None = None,
) -> tuple[float, float, int]:
    """Return the seconds of gradients and of an update, and the tokens of the gradients."""
    request = build_schedule(config, model_config.vocab_size).step_at(0.5).request
    row_flops = count_flops(config, model_config, teacher) * request.row_length
    num_rows = int(min(max(1, timed_flops / row_flops), request.micro_batch_rows))
    request = replace(request, num_rows=num_rows, micro_batch_rows=num_rows)
    loaded = load_random_step(config, model_config, request)

    model = objective_of(config).build_network(model_config)
    initialize(model, config.seed)
    model.train()
    loss = build_loss(config, model, teacher).to(device)
    parallel, terms = Parallel(loss), loss.terms
    stacked, dtype = count_stacked_matrices(model), product_dtype(config.train.precision, device)
    optimizers = build_optimizers(config.optim, model.named_parameters(), stacked, dtype=dtype)
    computing, stepping = list[float](), list[float]()
    begun = _now(device)
    # The first step is slower, because it allocates.
    while len(computing) <= _TIMED and _now(device) - begun < _TIMED_SECONDS:
        started = _now(device)
        counts = count_predictions(loaded, terms)
        compute_gradients(parallel, loaded, terms, counts, device, config.train.precision)
        computed = _now(device)
        clip_gradients(model, config.train.grad_clip, parallel)
        optimizers.step()
        optimizers.zero_grad()
        computing.append(computed - started)
        stepping.append(_now(device) - computed)
    return min(computing), min(stepping), num_rows * request.row_length


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def choose_size(
    settled: Settled,
    tokenizer: Tokenizer | None,
    epoch_tokens: float | None,
    world: World = ALONE,
    cards: Cards | None = None,
) -> Settled:
    """Return the configuration with the size that its budget pays for on `cards`, or here.

    The speed of a known card is that of the table, compiled; rank 0 measures that of other devices.
    Without ``model.sizes`` nothing changes.

    Args:
        tokenizer, epoch_tokens: that of the text and its tokens, if they are known.
    """
    sizes = [Size(*size) for size in parse_sizes(settled.config.model.sizes)]
    if not sizes:
        return settled
    cards = cards or find_cards_here(settled.config, world)
    steps = dict[Size, int]()  # tokens of each size's step

    def pay(size: Size) -> Pay:
        sized = adopt_size(settled, size).config
        model = resolve_model(sized, tokenizer)
        flops = count_flops(sized, model)
        if cards:
            (seconds, _), speed = time_on_cards(cards, sized, model), cards.peak_flops
        else:
            device = choose_device(sized.train.device)
            whole = measure_step_seconds(sized, model, device, _BRIEFLY.get(device.type))
            seconds = whole / world.size
            speed = flops * sized.train.mean_batch_tokens / seconds
        tokens = count_tokens(sized.train, seconds, epoch_tokens)
        steps[size] = sized.train.batch_tokens
        if size.width >= WIDE and may_fill_step(settled):
            steps[size] = fill_step(speed, flops, count_update_flops(sized, model), tokens)
        duration = sized.train.estimate_seconds(seconds, epoch_tokens)
        return count_pay(tokens, epoch_tokens, flops, duration)

    def find() -> str:
        size, reason = pick_size(sizes, pay, f"{cards}, computed" if cards else "this machine")
        return f"{sizes.index(size)} {steps[size]} {reason}"

    # Nothing is measured for known cards, so that no rank waits for another.
    found = find() if cards else world.text_from_first(find)
    number, batch_tokens, reason = found.split(" ", 2)
    size = sizes[int(number)]
    chosen = set_batch_tokens(adopt_size(settled, size), int(batch_tokens))
    return chosen.explain("size", f"{size}: {reason}")


_BYTES_PER_TOKEN = 4.2  # of English text, vocabulary 16,000; others differ by up to half
_COMPRESSION = 3.5  # of text by gzip; also assumed for parquet


def guess_tokens(
    sources: list[Source], bytes_per_token: float = _BYTES_PER_TOKEN
) -> tuple[float | None, str]:
    """Estimate the tokens of files that are not prepared yet; return a description, too."""
    described = f"{count_noun(len(sources), 'source')}, not prepared yet"
    num_bytes = 0.0
    for source in sources:
        if source.path is None:
            return None, f"{described}; the number of tokens is not known before"
        packed = source.compression or source.kind == "parquet"
        num_bytes += source.path.stat().st_size * (_COMPRESSION if packed else 1)
    tokens = num_bytes / bytes_per_token
    return tokens, f"{described}; about {tokens:,.0f} tokens, estimated from the file sizes"


def choose_vocabulary(settled: Settled, guessed_tokens: float | None, cards: Cards) -> Settled:
    """Return the configuration with the vocabulary of the size that GPUs will be given.

    Text is tokenized before its tokens are counted, so this size is that of an estimate.

    Args:
        guessed_tokens: tokens of the text, estimated from its files (`guess_tokens`).
        cards: the known GPUs of the run.
    """
    if not settled.config.model.sizes:
        return settled
    chosen = choose_size(settled, None, guessed_tokens, cards=cards)
    recipe = find_recipe(chosen.config.model.hidden_size)
    return set_vocab_size(settled, resolve(recipe).tokenizer.vocab_size)


def find_cards_here(config: PretrainConfig, world: World = ALONE) -> Cards | None:
    """Return the cards of a run on this machine; None if it has others than those of the table."""
    device = choose_device(config.train.device, world.local_rank)
    card = find_card(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return None if card is None else Cards(card, world.size)
