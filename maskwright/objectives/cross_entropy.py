"""Cross-entropy: the sum of -log p(label) and of correct predictions, with a fused gradient.

M predictions, V classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.masking import IGNORED
from maskwright.objectives.objective import TermSums


def sum_cross_entropy(logits: Tensor, labels: Tensor) -> TermSums:
    """Return sums over the rows of `logits` [M, V] whose label [M] is not -100, in fp32.

    A prediction is correct if no other class scores higher than the label.
    """
    if torch.compiler.is_compiling():  # the compiler fuses the plain formula better
        return sum_cross_entropy_plainly(logits, labels)
    loss, num_correct = _SumCrossEntropy.apply(logits, labels)
    return TermSums(loss, num_correct)


def sum_cross_entropy_plainly(logits: Tensor, labels: Tensor) -> TermSums:
    """Compute `sum_cross_entropy` by the plain formula, which reads the logits twice as often."""
    used = labels != IGNORED
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    scores = logits.detach()
    own = scores.gather(1, labels.clamp_min(0)[:, None])
    return TermSums(loss, ((own[:, 0] == scores.amax(-1)) & used).sum())


class _SumCrossEntropy(torch.autograd.Function):
    """``sum(log(sum(exp(x))) - x[label])``, whose gradient is ``softmax(x) - one_hot(label)``.

    Second derivatives are not supported.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        wide = logits.float()
        used = (labels != IGNORED)[:, None]
        classes = labels.clamp_min(0)[:, None]
        own, top = wide.gather(1, classes), wide.amax(-1, keepdim=True)
        gradient = (wide - top).exp_()
        total = gradient.sum(-1, keepdim=True)
        loss = torch.where(used, total.log() + top - own, 0.0).sum()
        num_correct = ((own == top) & used).sum()
        gradient.mul_(used / total).scatter_add_(1, classes, -used.float())
        ctx.save_for_backward(gradient.to(logits.dtype))
        ctx.mark_non_differentiable(num_correct)
        return loss, num_correct

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0].to(gradient.dtype), None
