"""Distillation: a student learns masked tokens from the labels and from a frozen teacher.

The loss of a masked token, with label y, logits s of the student and t of the teacher, their last
hidden states h_s and h_t, weight w, temperature T and cosine weight c, is::

    (1 - w) * -log p_s(y) + w * T^2 * KL(softmax(t / T) || softmax(s / T)) + c * (1 - cos(h_s, h_t))

Hinton et al., "Distilling the Knowledge in a Neural Network", 2015: T^2 keeps the gradient on the
scale of the labels'. Sanh et al., "DistilBERT, a distilled version of BERT", 2019: the cosine.

The teacher reads the same masked text in the same step: masks differ in every epoch, so its logits
could not be reused.

M entries for predictions, V vocabulary or candidates.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.masking import IGNORED
from maskwright.errors import ConfigError
from maskwright.model.fused import sum_cross_entropy
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.config import DistillConfig
from maskwright.objectives.mlm import MLM, MLM_TERM, MaskedTokensLoss, choose_among, run_model
from maskwright.objectives.objective import Term, TermSums

DISTILL = "distill"
_LEAST = -1e4  # a logit whose probability is 0, and which is finite


class DistillationLoss(MaskedTokensLoss):
    """The loss of a student beside a teacher, which is never trained.

    With candidates (`Batch`), both distributions are over the candidates and the label.

    Raises:
        ConfigError: the vocabularies differ, or ``distill.cosine`` is set and the widths differ.
    """

    def __init__(
        self, model: MaskedLanguageModel, teacher: MaskedLanguageModel, config: DistillConfig
    ) -> None:
        super().__init__(model)
        self.teacher = teacher.eval().requires_grad_(False)
        self.weight, self.temperature = config.weight, config.temperature
        self.cosine = _choose_cosine(config, model, teacher)
        self.terms = {
            MLM: replace(MLM_TERM, weight=1 - config.weight),
            DISTILL: Term(1.0, "distill_loss", "teacher_agreement", MLM_TERM.count),
        }

    def forward(self, batch: Batch) -> dict[str, TermSums]:
        """Return sums over the entries whose label is not -100.

        The loss of ``distill`` is its part of the formula above; its correct predictions are those
        that the teacher makes, too.
        """
        used = batch.masked_labels != IGNORED
        candidates, labels = choose_among(batch)
        more = {"candidates": candidates, "with_hidden": True}
        student, hidden = run_model(self.model, batch, **more)
        with torch.no_grad():
            teacher, target = run_model(self.teacher, batch, **more)
        divergence = diverge(self._soften(student, batch), self._soften(teacher, batch))
        loss = self.weight * self.temperature**2 * divergence
        if self.cosine:
            alike = F.cosine_similarity(hidden.float(), target.float(), dim=-1)
            loss = loss + self.cosine * (1 - alike)
        own, top = student.detach(), teacher.max(-1).indices  # faster than two calls of argmax
        agrees = own.gather(1, top[:, None])[:, 0] == own.amax(-1)
        return {
            MLM: TermSums(*sum_cross_entropy(student, labels)),
            DISTILL: TermSums(torch.where(used, loss, 0.0).sum(), (agrees & used).sum()),
        }

    def _soften(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return logits / T in fp32; the number of tokens of a candidate is not softened."""
        softened = logits.float() / self.temperature
        if batch.candidate_offsets is None:
            return softened
        counted = batch.candidate_offsets * (1 - 1 / self.temperature)
        return (softened + F.pad(counted, (0, 1))).clamp_min(_LEAST)


def diverge(student: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(student)) of each row of finite logits [M, V]: [M]."""
    expected, found = teacher.log_softmax(-1), student.log_softmax(-1)
    return F.kl_div(found, expected, reduction="none", log_target=True).sum(-1)


def _choose_cosine(
    config: DistillConfig, model: MaskedLanguageModel, teacher: MaskedLanguageModel
) -> float:
    ours, theirs = model.config, teacher.config
    if ours.vocab_size != theirs.vocab_size:
        rule = f"must be that of the teacher, {theirs.vocab_size}"
        raise ConfigError(
            "model.vocab_size", ours.vocab_size, rule, f"Set it to {theirs.vocab_size}."
        )
    is_possible = ours.hidden_size == theirs.hidden_size
    if config.cosine and not is_possible:
        rule = (
            f"needs equal widths: the student has model.hidden_size = {ours.hidden_size}, the "
            f"teacher {theirs.hidden_size}"
        )
        raise ConfigError("distill.cosine", config.cosine, rule, "Remove it.")
    return float(is_possible) if config.cosine is None else config.cosine
