"""How long a step would take, measured on random tokens: no text is needed to know it."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.data.collate import SpecialIds
from maskwright.data.loader import RowSource, StepRequest
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.optim.build import build_optimizers
from maskwright.pretraining.prepared_data import build_planner, objective_of
from maskwright.runs.config import PretrainConfig
from maskwright.train.device import product_dtype
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


@dataclass(frozen=True)
class RandomCorpus:
    """Documents of random ordinary tokens, every one a word, each as long as a row can take."""

    ids: NDArray[np.int64]
    document_lengths: NDArray[np.int64]

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger]:
        return self.ids[start:stop].astype(np.uint32)

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        return np.ones(stop - start, np.bool_)


def measure_step_seconds(
    config: PretrainConfig,
    model_config: EncoderConfig,
    device: torch.device,
    timed_flops: float | None = None,
) -> float:
    """Return the seconds of a mean step, uncompiled, from a few rows as at half of the run.

    Args:
        timed_flops: floating-point operations that the few rows take; none: what suits the device.
    """
    plan = build_planner(config).plan_step(0.5)
    length, rate = plan.request.row_length, config.masking.rate_at(0.5)
    share = config.masking.predicted_share_at(0.5)
    objective = objective_of(config)
    flops = objective.count_flops_per_token(model_config, length, share) * length
    fitting = (timed_flops or _TIMED_FLOPS.get(device.type, 1e11)) / flops
    num_rows = int(min(max(1, fitting), plan.request.micro_batch_rows))
    source = _random_rows(config, model_config, num_rows, length)
    loaded = source.load(StepRequest(length, num_rows, num_rows, rate), DataPosition(length))

    model = objective.build_network(model_config)
    initialize(model, config.seed)
    model.to(device).train()
    loss = objective.build_loss(model)
    parallel, terms = Parallel(loss), loss.terms
    optimizers = build_optimizers(
        config.optim,
        model.named_parameters(),
        count_stacked_matrices(model),
        dtype=product_dtype(config.train.precision, device),
    )
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
    size = model.vocab_size
    inside = length - config.data.extra_slots
    num_documents = max(2, num_rows)  # pairs of texts may want two
    ids = np.random.default_rng(config.seed).integers(_NUM_SPECIAL, size, num_documents * inside)
    corpus = RandomCorpus(ids, np.full(num_documents, inside, np.int64))
    ordinary = np.arange(_NUM_SPECIAL, size)
    vocabulary = Vocabulary(size, _NUM_SPECIAL - 1, ordinary, np.ones(size, np.int64))
    special = SpecialIds(model.pad_token_id, 2, 3, config.data.special_tokens)
    masker = Masker(config.masking, vocabulary)
    return RowSource(corpus, config.data, special, masker, config.seed)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
