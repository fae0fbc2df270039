"""The time of a step and the size of the model that a budget pays for, here or on a known GPU.

A step is measured on random tokens: no text is needed to know its time. For a named GPU, size, time
and memory are computed without one at hand.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from maskwright.corpus.sources import Source, find_sources
from maskwright.data.loader import StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import ALONE, World
from maskwright.formatting import count_noun
from maskwright.model.config import EncoderConfig, parse_sizes
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.flops import count_parameters
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.optim.build import build_optimizers
from maskwright.preparation.find_data import named_folder
from maskwright.pretraining.prepared_data import (
    build_loss,
    build_planner,
    build_random_rows,
    guess_model,
    objective_of,
)
from maskwright.pretraining.rungs import Pay, Size, fill_card, pick_size, set_rung, set_vocabulary
from maskwright.runs.config import PretrainConfig
from maskwright.train.device import Cards, choose_device, find_card, own_tokens, product_dtype
from maskwright.train.step import (
    clip_gradients,
    compute_gradients,
    count_predictions,
)

_BYTES_PER_TOKEN = 4.2  # of English text, vocabulary 16,000; others differ by up to half
_COMPRESSION = 3.5  # of text by gzip; also assumed for parquet
_TIMED = 3
_TIMED_SECONDS = 1.0  # then no further step is timed
# Rows enough to keep the device busy, and no more.
_TIMED_FLOPS = {"cpu": 1e10, "cuda": 2e13}
# On a CPU: if a row and an update take more, one layer is measured, on short rows.
_WHOLE_FLOPS, _PROBED_LENGTH, _PROBED_VOCABULARY = 5e10, 128, 2048
_BRIEFLY = {"cpu": 5e9, "cuda": 2e12}  # for each size that is tried: less than a second


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
    whole = count_all_flops(config, model_config, teacher)
    if not is_measured_whole(config, model_config, device, teacher):
        probe, layer = _shrink(config, model_config)
        seconds, _, tokens = _time_step(probe, layer, device, timed_flops)
        flops_a_second = count_flops_per_token(probe, layer) * tokens / seconds
        flops = whole * config.train.mean_batch_tokens + count_update_flops(config, model_config)
        return flops / flops_a_second
    seconds, stepping, tokens = _time_step(config, model_config, device, timed_flops, teacher)
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
    flops = count_all_flops(config, model, teacher) * length + count_update_flops(config, model)
    return device.type != "cpu" or flops <= _WHOLE_FLOPS


def count_update_flops(config: PretrainConfig, model: EncoderConfig) -> float:
    """Return the operations of Muon's update: three products of a matrix and its Gram matrix."""
    steps = config.optim.newton_schulz_steps if config.optim.name == "muon" else 0
    return 6 * steps * model.hidden_size * count_parameters(model).blocks


def count_all_flops(
    config: PretrainConfig, model: EncoderConfig, teacher: MaskedLanguageModel | None
) -> float:
    """Return the operations of a token with those of the teacher, which has no backward pass."""
    taught = count_flops_per_token(config, teacher.config) / 3 if teacher else 0.0
    return count_flops_per_token(config, model) + taught


def _time_step(
    config: PretrainConfig,
    model_config: EncoderConfig,
    device: torch.device,
    timed_flops: float,
    teacher: MaskedLanguageModel | None = None,
) -> tuple[float, float, int]:
    """Return the seconds of gradients and of an update, and the tokens of the gradients."""
    plan = build_planner(config, model_config.vocab_size).plan_step(0.5)
    length, rate = plan.request.row_length, config.masking.rate_at(0.5)
    fitting = timed_flops / (count_all_flops(config, model_config, teacher) * length)
    num_rows = int(min(max(1, fitting), plan.request.micro_batch_rows))
    source = build_random_rows(config, model_config, num_rows, length)
    request = StepRequest(length, num_rows, num_rows, rate, plan.request.num_candidates)
    loaded = source.load(request, DataPosition(length))

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
    return min(computing), min(stepping), num_rows * length


def count_flops_per_token(config: PretrainConfig, model: EncoderConfig) -> float:
    """Return the operations of a token at half of the run, where candidates may be few."""
    size = config.train.num_candidates_at(0.5) or model.vocab_size
    length = config.train.seq_length_at(0.5, config.data.max_seq_length)
    share = config.masking.predicted_share_at(0.5)
    sized = replace(model, vocab_size=min(size, model.vocab_size))
    return objective_of(config).count_flops_per_token(sized, length, share)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def choose_size(
    config: PretrainConfig,
    resolve: Callable[[PretrainConfig], EncoderConfig],
    epoch_tokens: float | None,
    world: World = ALONE,
    known: tuple[str, float, Callable[[PretrainConfig, EncoderConfig], float]] | None = None,
) -> tuple[PretrainConfig, str]:
    """Return the configuration with the largest of its sizes that the budget pays for, and why.

    Rank 0 measures the speed, unless it is known. Without sizes nothing changes.

    Args:
        resolve: returns the architecture of a configuration.
        epoch_tokens: tokens of the text, if they are known.
        known: the name and the FLOP/s of the devices, and a function that returns the seconds of a
            step on all of them.
    """
    sizes = [Size(*size) for size in parse_sizes(config.model.sizes)]
    if not sizes:
        return config, ""
    filled = dict[Size, PretrainConfig]()

    def measure(sized: PretrainConfig, model: EncoderConfig) -> float:
        device = choose_device(sized.train.device)
        return measure_step_seconds(sized, model, device, _BRIEFLY.get(device.type)) / world.size

    where, peak, time_step = known or ("this machine", 0.0, measure)

    def pay(size: Size) -> Pay:
        sized = set_rung(config, size)
        model = resolve(sized)
        seconds, slots = time_step(sized, model), sized.train.mean_batch_tokens
        duration = sized.train.estimate_seconds(seconds, epoch_tokens)
        tokens = duration / seconds * slots
        flops = count_flops_per_token(sized, model)
        speed = peak or flops * slots / seconds
        filled[size] = fill_card(sized, speed, flops, count_update_flops(sized, model), tokens)
        return Pay.of(tokens, epoch_tokens, flops, duration)

    def find() -> str:
        size, reason = pick_size(sizes, pay, where)
        return f"{sizes.index(size)} {filled[size].train.batch_tokens} {reason}"

    number, batch_tokens, reason = world.text_from_first(find).split(" ", 2)
    size = sizes[int(number)]
    chosen = set_rung(config, size)
    train = replace(chosen.train, batch_tokens=int(batch_tokens))
    return replace(chosen, train=train), f"{size}: {reason}"


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


def guess_tokens(sources: list[Source]) -> tuple[float | None, str]:
    """Estimate the tokens of files that are not prepared yet; return a description, too."""
    described = f"{count_noun(len(sources), 'source')}, not prepared yet"
    num_bytes = 0.0
    for source in sources:
        if source.path is None:
            return None, f"{described}; the number of tokens is not known before"
        packed = source.compression or source.kind == "parquet"
        num_bytes += source.path.stat().st_size * (_COMPRESSION if packed else 1)
    tokens = num_bytes / _BYTES_PER_TOKEN
    return tokens, f"{described}; about {tokens:,.0f} tokens, estimated from the file sizes"


def choose_vocabulary(
    config: PretrainConfig, world: World = ALONE, cards: Cards | None = None
) -> PretrainConfig:
    """Return the configuration with the vocabulary of the size that GPUs will be given.

    Text is tokenized before its tokens are counted, so this size is that of an estimate for `cards`
    or those of this machine. Without a known GPU nothing changes.
    """
    known = cards or find_cards_here(config, world)
    if known is None or not config.model.sizes or named_folder(config) is not None:
        return config
    tokens, _ = guess_tokens(find_sources(config.text))
    chosen, _ = choose_size_here(config, guess_model, tokens, cards=known)
    return set_vocabulary(config, chosen.model.hidden_size)


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
