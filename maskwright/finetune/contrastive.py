"""Vectors of texts from pairs that belong together: InfoNCE with in-batch negatives.

van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; the loss of
sentence-transformers' ``MultipleNegativesRankingLoss``, in both directions. R pairs, D width.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.errors import CorpusError, TrainingError
from maskwright.finetune.batches import collate, plan_steps
from maskwright.finetune.config import FinetuneConfig
from maskwright.finetune.examples import encode_texts, read_texts
from maskwright.finetune.fit import Report, scale_rate
from maskwright.finetune.network import group_parameters
from maskwright.finetune.tables import Column, read_columns
from maskwright.model.classifier import pool_mean
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021
_HELD_OUT = 16  # one pair in so many is scored on, at most
_CANDIDATES = 256


def read_pairs(
    path: Path, columns: Mapping[str, Column], has_header: bool | None
) -> list[tuple[str, str]]:
    """The pairs of a table.

    Raises:
        CorpusError: what `read_columns` raises, or fewer pairs than anything can be learned from.
    """
    rows = list(read_columns(path, columns, has_header))
    pairs = [(first, second) for first, second in map(read_texts, rows)]
    if len(pairs) < 2 * _HELD_OUT:
        raise CorpusError(f"{path} holds {len(pairs)} pairs; at least {2 * _HELD_OUT} are needed.")
    return pairs


def contrast(first: Tensor, second: Tensor) -> Tensor:
    """The loss of R pairs of vectors [R, D]: each is to find its own among all of the others.

    ``-1/R Σ log softmax(cos(a_i, b_j) / temperature)_i``, the mean of both directions.
    """
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T / TEMPERATURE
    own = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


class ContrastiveFitting:
    """Training of an encoder on pairs; mean pooling, as ``maskwright embed`` has it."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        pairs: Sequence[tuple[str, str]],
        tokenizer: Tokenizer,
        config: FinetuneConfig,
        report: Report,
    ) -> None:
        self.model, self.config, self.report = model, config, report
        self.pad_id = tokenizer.pad_id
        longest = model.config.max_position_embeddings
        longest = min(config.max_length or longest, longest)
        texts = [[(pair[side],) for pair in pairs] for side in (0, 1)]
        sides = [encode_texts(each, tokenizer, longest)[0] for each in texts]
        held_out = min(_CANDIDATES, len(pairs) // _HELD_OUT)
        self.train = [side[held_out:] for side in sides]
        self.valid = [side[:held_out] for side in sides]
        self.device = next(model.parameters()).device

    def run(self) -> dict[str, Any]:
        """Trains for all epochs; the last record of the scores.

        Raises:
            TrainingError: a loss that is not finite.
        """
        config = self.config
        torch.manual_seed(config.first_seed)
        encoder = nn.ModuleDict({"encoder": self.model.encoder})
        optimizer = torch.optim.AdamW(group_parameters(encoder, config))
        lengths = [len(a.ids) + len(b.ids) for a, b in zip(*self.train, strict=True)]
        an_epoch = math.ceil(len(lengths) / config.batch_size)
        num_steps = max(1, math.ceil(config.epochs * an_epoch))
        every = max(1, round(an_epoch / config.evaluations_an_epoch))
        began, losses, record = time.perf_counter(), [], {}
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: scale_rate(step, num_steps, config.warmup_share)
        )
        steps = plan_steps(lengths, config.batch_size, num_steps, config.first_seed)
        for step, numbers in enumerate(steps, start=1):
            losses.append(self._train_on(numbers, encoder))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step % every == 0 or step == num_steps:
                record = {
                    "step": step,
                    "epoch": step / an_epoch,
                    "loss": sum(losses) / len(losses),
                    **self.score(),
                    "seconds": time.perf_counter() - began,
                }
                losses = []
                self.report(record)
        return record

    def _train_on(self, numbers: list[int], encoder: nn.Module) -> float:
        self.model.train()
        with autocast(self.config.precision, self.device):
            sides = [self._embed([side[number] for number in numbers]) for side in self.train]
        loss = contrast(*(side.float() for side in sides))
        loss.backward()
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(encoder.parameters(), self.config.grad_clip)
        value = loss.item()
        if not math.isfinite(value):
            raise TrainingError("the loss is not finite. Try a lower learning_rate.")
        return value

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """How many of the held-out texts find their own partner among all of these."""
        self.model.eval()
        first, second = (F.normalize(self._embed(side).float(), dim=-1) for side in self.valid)
        own = torch.arange(len(first), device=first.device)
        found = ((first @ second.T).argmax(1) == own).float().mean().item()
        return {"found": found, "candidates": len(first)}

    def _embed(self, inputs: Sequence[ModelInput]) -> Tensor:
        batch = collate(inputs, self.pad_id).to(self.device)
        hidden = self.model.encoder(batch.input_ids, batch.context)
        return pool_mean(hidden, batch.context)
