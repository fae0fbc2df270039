"""What a budget pays for on this machine: the time of a step, and with it the size of the model.

A step is measured on random tokens: no text is needed to know its time. Each of `model.sizes` is
stated with the training from which on it learns most (docs/experiments.md), in petaFLOP; so one
recipe serves ten minutes and two hours of a laptop.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from maskwright.data.collate import SpecialIds
from maskwright.data.loader import RowSource, StepRequest, TokensInMemory
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import ALONE, World
from maskwright.model.config import EncoderConfig, ModelConfig, parse_sizes
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.optim.build import build_optimizers
from maskwright.pretraining.prepared_data import build_loss, build_planner, objective_of
from maskwright.runs.config import PretrainConfig
from maskwright.train.device import choose_device, product_dtype
from maskwright.train.step import (
    clip_gradients,
    compute_gradients,
    count_predictions,
    update_weights,
)

_TIMED = 3
_NUM_SPECIAL = 5  # as in every tokenizer that is trained here
# Rows enough to keep the device busy, and no more: a step of a large model on a CPU takes minutes.
_TIMED_FLOPS = {"cpu": 1e11, "cuda": 2e13}
_BRIEFLY = {"cpu": 2e10, "cuda": 2e12}  # for each size that is tried: less than a second


def measure_step_seconds(
    config: PretrainConfig,
    model_config: EncoderConfig,
    device: torch.device,
    timed_flops: float | None = None,
    teacher: MaskedLanguageModel | None = None,
) -> float:
    """Return the seconds of a mean step, uncompiled, from a few rows as at half of the run.

    Args:
        timed_flops: floating-point operations that the few rows take; none: what suits the device.
        teacher: the model that the step also runs.
    """
    plan = build_planner(config, model_config.vocab_size).plan_step(0.5)
    length, rate = plan.request.row_length, config.masking.rate_at(0.5)
    objective = objective_of(config)
    flops = _count_flops_per_token(config, model_config) * length
    fitting = (timed_flops or _TIMED_FLOPS.get(device.type, 1e11)) / flops
    num_rows = int(min(max(1, fitting), plan.request.micro_batch_rows))
    source = _random_rows(config, model_config, num_rows, length)
    request = StepRequest(length, num_rows, num_rows, rate, plan.request.num_candidates)
    loaded = source.load(request, DataPosition(length))

    model = objective.build_network(model_config)
    initialize(model, config.seed)
    model.train()
    loss = build_loss(config, model, teacher).to(device)
    parallel, terms = Parallel(loss), loss.terms
    stacked, dtype = count_stacked_matrices(model), product_dtype(config.train.precision, device)
    optimizers = build_optimizers(config.optim, model.named_parameters(), stacked, dtype=dtype)
    computing, stepping = list[float](), list[float]()
    for _ in range(1 + _TIMED):  # the first is slower: it allocates
        started = _now(device)
        counts = count_predictions(loaded, terms)
        compute_gradients(parallel, loaded, terms, counts, device, config.train.precision)
        computed = _now(device)
        clip_gradients(model, config.train.grad_clip, parallel)
        update_weights(optimizers, plan.learning_rate_scale)
        optimizers.zero_grad()
        computing.append(computed - started)
        stepping.append(_now(device) - computed)
    batches = config.train.mean_batch_tokens / (num_rows * length)
    return min(computing[1:]) * batches + min(stepping[1:])


def _random_rows(
    config: PretrainConfig, model: EncoderConfig, num_rows: int, length: int
) -> RowSource:
    """Return rows of random ordinary tokens, every one a word, each as long as a row can take."""
    size = model.vocab_size
    inside = length - config.data.extra_slots
    num_documents = max(2, num_rows)  # pairs of texts may want two
    ids = np.random.default_rng(config.seed).integers(_NUM_SPECIAL, size, num_documents * inside)
    words, lengths = np.ones(len(ids), np.bool_), np.full(num_documents, inside, np.int64)
    corpus = TokensInMemory(ids.astype(np.uint32), words, lengths)
    ordinary = np.arange(_NUM_SPECIAL, size)
    vocabulary = Vocabulary(size, _NUM_SPECIAL - 1, ordinary, np.ones(size, np.int64))
    special = SpecialIds(model.pad_token_id, 2, 3, config.data.special_tokens)
    masker = Masker(config.masking, vocabulary)
    return RowSource(corpus, config.data, special, masker, config.seed)


def _count_flops_per_token(config: PretrainConfig, model: EncoderConfig) -> float:
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
) -> tuple[PretrainConfig, str]:
    """Return the configuration with the largest of its sizes that the budget pays for, and why.

    Rank 0 measures the speed. Without sizes nothing changes.

    Args:
        resolve: returns the architecture of a configuration.
        epoch_tokens: tokens of the text, if they are known.
    """
    sizes = parse_sizes(config.model.sizes)
    if not sizes:
        return config, ""
    sized = [replace(config, model=set_size(config.model, *size)) for _, *size in sizes]

    def find() -> str:
        chosen, paid = 0, 0.0
        for number, (least, *_) in enumerate(sizes):
            found = _count_petaflops(sized[number], resolve, epoch_tokens, world.size)
            if number and found < least:
                break
            chosen, paid = number, found
        return f"{chosen} {paid:.3g}"

    number, paid = world.text_from_first(find).split()
    _, width, layers = sizes[int(number)]
    if paid == "inf":  # a dry run: a run knows its tokens
        reason = "if its text has epochs enough, which is known once it is prepared"
        return sized[int(number)], f"width {width}, layers {layers}: {reason}"
    reason = f"the budget pays for {paid} petaFLOP of training on this machine"
    following = sizes[int(number) + 1 :]
    if not following:
        reason += "; model.sizes has no larger one"
    else:
        reason += f"; width {following[0][1]}, layers {following[0][2]} needs {following[0][0]:g}"
    return sized[int(number)], f"width {width}, layers {layers}: {reason}"


def set_size(model: ModelConfig, width: int, layers: int) -> ModelConfig:
    """Return the model with this size: heads of 64, an MLP three times as wide."""
    return replace(
        model,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=None,
        intermediate_size=3 * width,
    )


def _count_petaflops(
    config: PretrainConfig,
    resolve: Callable[[PretrainConfig], EncoderConfig],
    epoch_tokens: float | None,
    num_ranks: int,
) -> float:
    """Return what the run would compute, as it is counted a token, in petaFLOP."""
    model, train = resolve(config), config.train
    device = choose_device(train.device)
    seconds = measure_step_seconds(config, model, device, _BRIEFLY.get(device.type)) / num_ranks
    flops = _count_flops_per_token(config, model)
    steps = train.estimate_seconds(seconds, epoch_tokens) / seconds
    return steps * train.mean_batch_tokens * flops / 1e15
