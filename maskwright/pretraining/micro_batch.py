"""The largest micro-batch that fits on a GPU, estimated, or found from two small trials.

The peak of memory is linear in the tokens of a micro-batch, so two trials give it for any size. The
loss does not depend on the size: it is a sum divided by the predictions of the whole step.

The estimate needs the configuration alone. Activations are those that the backward pass needs
(Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022), here
with flash attention, compiled blocks and a residual stream in fp32. A test compares them with
measured peaks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

import torch

from maskwright.data.loader import StepRequest
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters
from maskwright.pretraining.build import load_random_step
from maskwright.pretraining.gpus import Cards, own_tokens
from maskwright.runs.config import PretrainConfig
from maskwright.train.device import GIGABYTE, SPARE, choose_device, measure_room, product_dtype
from maskwright.train.step import compute_gradients, count_predictions
from maskwright.train.trainer import Trainer

_FP32 = 4


class MemoryEstimate(NamedTuple):
    """The bytes of each part at the peak of a step; `weights` includes autocast's copies."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """The bytes of all parts."""
        return sum(self)


def estimate_memory(
    config: EncoderConfig,
    micro_batch_tokens: int,
    row_length: int,
    masked_share: float,
    optimizer: Literal["muon", "adamw"] = "adamw",
    dtype: torch.dtype = torch.bfloat16,
    checkpointing: bool = False,
) -> MemoryEstimate:
    """Return the memory of a step of a masked language model whose state is whole on the device.

    Args:
        config: the architecture.
        micro_batch_tokens: tokens of a forward pass, padding included.
        row_length: tokens of a row.
        masked_share: the largest share of tokens to predict.
        optimizer: as `OptimConfig.name`; AdamW stores two numbers a parameter, Muon one.
        dtype: precision of the products.
        checkpointing: True to store the inputs of blocks alone and compute the rest again.
    """
    parts, size = count_parameters(config), dtype.itemsize
    copies = size if size < _FP32 else 0
    slots = 2 * parts.total - (parts.blocks if optimizer == "muon" else 0)
    per_token = _count_activations(config, row_length, masked_share, size, checkpointing)
    return MemoryEstimate(
        weights=(_FP32 + copies) * parts.total,
        gradients=_FP32 * parts.total,
        optimizer=_FP32 * slots,
        activations=per_token * micro_batch_tokens,
    )


def _count_activations(
    config: EncoderConfig, row_length: int, masked_share: float, size: int, checkpointing: bool
) -> float:
    """Return the bytes a token at the beginning of the backward pass, or in its first block.

    Args:
        size: bytes of a number in the dtype of the products.
    """
    stream, width = _FP32 * config.hidden_size, size * config.hidden_size
    inner, layers = size * config.intermediate_size, config.num_hidden_layers
    has_dropout = config.attention_dropout > 0
    # Input, its norm, queries, keys, values, the rotated ones, what attention returns.
    rotated = 2 * ((config.positions == "rotary") + config.qk_norm)
    attention = stream + (5 + rotated) * width
    if config.positions == "relative":  # scores, which flash attention does not store
        scores = config.num_attention_heads * row_length
        attention += scores * (_FP32 + 2 * size + has_dropout)
    # Input, its norm, and the two or three vectors inside of the MLP.
    mlp = stream + width + (3 if config.gated_mlp else 2) * inner
    mlp += (1 + size) * config.intermediate_size * (config.mlp_dropout > 0)
    if config.norm_position == "post":  # the sums before the norms
        attention, mlp = attention + stream, mlp + stream
    if config.hidden_dropout:  # one byte an element
        attention, mlp = attention + config.hidden_size, mlp + config.hidden_size
    block = attention + mlp
    # The end of the last block processes masked tokens alone.
    blocks = layers * stream if checkpointing else layers * block - (1 - masked_share) * mlp
    around = 2 * _FP32 * config.embedding_width
    if size == _FP32 or has_dropout:  # a mask of each type of layer instead of bounds
        around += len(set(config.layer_types)) * row_length * (1 + size)
    # Logits and two arrays of fp32, and the gradient that is stored in the dtype of the products.
    logits = masked_share * config.vocab_size * (2 * _FP32 + (2 * size if size < _FP32 else 0))
    return blocks + around + max(logits, 2 * block if checkpointing else block)


REMEDY = "Set train.activation_checkpointing to true, or choose shorter rows or a smaller model."
_TRIAL_TOKENS = 2048  # and twice as many: enough for activations to be what the peak consists of


class RowsOfStep(NamedTuple):
    """The rows of a step of one process, as if all had the longest length of the run."""

    length: int
    most: int

    @classmethod
    def of(cls, config: PretrainConfig, num_ranks: int = 1) -> "RowsOfStep":
        """Return them for the largest step of a run."""
        length = max(config.train.seq_lengths(config.data.max_seq_length))
        return cls(length, math.ceil(config.train.most_batch_tokens / num_ranks / length))


def fit_micro_batch(
    peak: Callable[[int], float],
    room: float,
    rows: RowsOfStep,
    kept: int | None = None,
    world: World = ALONE,
) -> int:
    """Return the tokens of the largest micro-batch that fits on all ranks; 0: not one row fits.

    It is one of the fewest equal parts of the largest step, in whole rows.

    Args:
        peak: returns the bytes at the peak for a number of tokens; infinite: memory ran out.
        room: the bytes that this rank may use.
        kept: the tokens to keep if they fit, those of a run to resume.
    """
    few = max(1, _TRIAL_TOKENS // rows.length)
    low, high = (peak(count * rows.length) for count in (few, 2 * few))
    if high == math.inf:
        fitting = few if low <= room else 0
    else:
        fitting = few + math.floor((room - low) / max(1.0, (high - low) / few))
    fitting = max(0, int(world.least(fitting)))
    if kept is not None and 0 < kept <= fitting * rows.length:
        return kept
    if fitting == 0:
        return 0
    parts = math.ceil(rows.most / fitting)
    return math.ceil(rows.most / parts) * rows.length


class MicroBatch(NamedTuple):
    """A micro-batch and the memory that its step is estimated to take.

    Attributes:
        tokens: those of one row if none `fits`.
        dtype: precision of the products.
        room: bytes of the GPU; infinite if there is none.
    """

    tokens: int
    memory: MemoryEstimate
    dtype: torch.dtype
    room: float
    fits: bool


def estimate_micro_batch(
    config: PretrainConfig, models: Sequence[EncoderConfig], cards: Cards | None = None
) -> MicroBatch:
    """Return the configured micro-batch if it fits on a GPU, else the largest that does.

    Args:
        models: those that the run trains together.
        cards: the GPUs; None: that of this machine, or one with ``train.device_memory``.
    """
    train, num_ranks = config.train, cards.count if cards else 1
    rows = RowsOfStep.of(config, num_ranks)
    share = 1.0 if config.masking.causal_share else config.masking.highest_rate
    device = torch.device("cpu") if cards else choose_device(train.device)
    rooms = [train.device_memory * GIGABYTE] if train.device_memory else []
    if cards:
        rooms.append(cards.card.memory)
    elif device.type == "cuda":
        rooms.append(torch.cuda.mem_get_info(device)[1])
    dtype = product_dtype(train.precision, device)
    if rooms and device.type != "cuda" and train.precision == "auto":  # the GPU is not here
        dtype = torch.bfloat16

    def estimate(tokens: int) -> MemoryEstimate:
        options = (config.optim.name, dtype, train.activation_checkpointing)
        each = [estimate_memory(one, tokens, rows.length, share, *options) for one in models]
        return MemoryEstimate(*map(sum, zip(*each, strict=True)))

    fitting = tokens = max(rows.length, own_tokens(train, num_ranks))
    if rooms:
        kept = None if train.micro_batch_tokens == "auto" else tokens
        room = min(rooms) * (1 - SPARE)
        fitting = fit_micro_batch(lambda count: estimate(count).total, room, rows, kept)
        tokens = fitting or rows.length
    return MicroBatch(tokens, estimate(tokens), dtype, min(rooms, default=math.inf), fitting > 0)


def choose_micro_batch(
    trainer: Trainer, config: PretrainConfig, report: Callable[[str], None], kept: int | None = None
) -> None:
    """Set the micro-batches of a trainer at step 0 on a GPU to the largest that fit.

    Args:
        kept: the tokens to keep if they fit.

    Raises:
        ConfigError: not one row fits.
    """
    rows, limit = RowsOfStep.of(config, trainer.world.size), config.train.device_memory
    room = measure_room(limit, trainer.device)
    state = trainer.optimizers.estimate_state_bytes() / trainer.parallel.sharding.num_shards
    tokens = fit_micro_batch(
        lambda tokens: state + try_micro_batch(trainer, config, tokens, rows.length),
        room=room,
        rows=rows,
        kept=kept,
        world=trainer.world,
    )
    torch.cuda.empty_cache()
    if tokens == 0:
        rule = f"finds no room for a row of {rows.length} tokens in {room / GIGABYTE:.1f} GB"
        raise ConfigError("train.micro_batch_tokens", "auto", rule, REMEDY)
    train = replace(trainer.schedule.train, micro_batch_tokens=tokens)
    trainer.schedule = replace(trainer.schedule, train=train)
    report(f"micro-batch: {tokens:,} tokens at once, in {room / GIGABYTE:.1f} GB of the GPU")


def try_micro_batch(trainer: Trainer, config: PretrainConfig, tokens: int, length: int) -> float:
    """Return the peak of memory of a step of random rows, in bytes; infinite if it runs out.

    There are two micro-batches, because the second needs room beside the gradients. No weight
    changes, gradients are removed, and the state of torch's generators is as before.
    """
    device, masking, num_rows = trainer.device, config.masking, tokens // length
    # All predictions of the run at their most: causal steps have the most of all.
    causal_share = math.nextafter(1.0, 0.0) if masking.causal_share else 0.0
    config = replace(config, masking=replace(masking, causal_share=causal_share))
    num_candidates = config.train.num_candidates_at(math.nextafter(1.0, 0.0))
    request = StepRequest(length, num_rows, num_rows, masking.highest_rate, num_candidates)
    loaded = load_random_step(config, trainer.model.config, request)
    loaded = replace(loaded, micro_batches=2 * loaded.micro_batches)
    counts = count_predictions(loaded, trainer.terms)
    what = (trainer.parallel, loaded, trainer.terms, counts, device, config.train.precision)
    trainer.model.train()
    try:
        # Compiling the trials' shapes would take longer than all the rest of a start; without, the
        # peak is a fifth higher, which leaves room for the graphs of recorded steps.
        eagerly = cast(Any, torch.compiler).set_stance("force_eager")
        with eagerly, cast(Any, torch.random).fork_rng([device] if device.type == "cuda" else []):
            for _ in range(2):  # at first libraries set themselves up
                torch.cuda.reset_peak_memory_stats(device)
                compute_gradients(*what)
                trainer.optimizers.zero_grad()
    except torch.OutOfMemoryError:
        return math.inf
    finally:
        trainer.optimizers.zero_grad()
    return torch.cuda.max_memory_allocated(device)
