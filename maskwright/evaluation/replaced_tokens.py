"""How well a discriminator tells replaced tokens, on pinned masks.

The generator's draws are pinned like its masks, but which tokens they become is the generator's
doing: as it gets better fewer of its tokens are wrong, and those are harder to tell. So accuracy
and loss mean something only beside those of saying "original" always.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE, World
from maskwright.model.electra import GeneratorAndDiscriminator
from maskwright.objectives.rtd import predict_replaced


@dataclass(frozen=True)
class ReplacedTokenScores:
    """Scores over all tokens of a validation but padding.

    Attributes:
        rtd_loss: mean -log p of what is true of a token, in nats.
        rtd_accuracy: share of the tokens of which the likelier is true.
        rtd_base_loss: the loss of giving every token the share of replaced ones.
        rtd_base_accuracy: the accuracy of saying "original" always.
        rtd_recall: share of the replaced tokens that are found.
        num_judged: tokens.
    """

    rtd_loss: float
    rtd_accuracy: float
    rtd_base_loss: float
    rtd_base_accuracy: float
    rtd_recall: float
    num_judged: int


@torch.no_grad()
def evaluate_replaced_tokens(
    model: GeneratorAndDiscriminator,
    batches: Iterator[Batch],
    device: torch.device,
    world: World = ALONE,
) -> ReplacedTokenScores:
    """Scores of `model` on the batches of all ranks."""
    sums = torch.zeros(5, dtype=torch.float64)
    for batch in batches:
        scores, truth = predict_replaced(model, batch.to(device))
        loss = F.binary_cross_entropy_with_logits(scores, truth.float(), reduction="sum")
        said = scores > 0
        counts = ((said == truth).sum(), truth.sum(), (said & truth).sum())
        sums += torch.tensor([loss.item(), *(n.item() for n in counts), len(truth)])
    loss, right, replaced, found, count = world.sum(*sums.tolist())
    total = max(count, 1)
    share = replaced / total
    return ReplacedTokenScores(
        rtd_loss=loss / total,
        rtd_accuracy=right / total,
        rtd_base_loss=-sum(p * math.log(p) for p in (share, 1 - share) if p > 0),
        rtd_base_accuracy=1 - share,
        rtd_recall=found / max(replaced, 1),
        num_judged=int(count),
    )
