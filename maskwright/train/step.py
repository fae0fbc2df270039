"""One optimizer step: the loss of a whole batch, however it is cut.

The loss is the sum over all predictions of all micro-batches divided by their number, which is
known before the first is computed; so 1 x 64 and 8 x 8 rows give the same gradient.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from maskwright.data.draws import derive_keys
from maskwright.data.loader import LoadedStep
from maskwright.objectives.mlm import ObjectiveSums, context_of
from maskwright.optim.build import Optimizers
from maskwright.train.config import Precision
from maskwright.train.device import autocast

Objective = Callable[..., ObjectiveSums]


def seed_dropout(seed: int, step: int) -> None:
    """Makes dropout a function of (seed, step), so that no generator state has to be saved."""
    torch.manual_seed(int(derive_keys(seed, step)[0]) % 2**63)


def compute_gradients(
    objective: Objective, loaded: LoadedStep, device: torch.device, precision: Precision
) -> tuple[Tensor, Tensor]:
    """Adds the gradient of the mean loss to the parameters; returns (loss, num_correct).

    A step without a single prediction has loss 0 and zero gradients.
    """
    total = max(loaded.num_predictions, 1)
    loss = torch.zeros((), device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    for batch in loaded.micro_batches:
        batch = batch.to(device)
        with autocast(precision, device):
            sums = objective(
                batch.input_ids, context_of(batch), batch.masked_positions, batch.masked_labels
            )
        (sums.loss / total).backward()
        loss += sums.loss.detach() / total
        correct += sums.num_correct
    return loss, correct


def take_step(
    model: nn.Module,
    optimizers: Optimizers,
    learning_rate_scale: float,
    grad_clip: float,
) -> Tensor:
    """Clips the gradients, updates the weights, clears the gradients; returns the norm []."""
    limit = grad_clip or float("inf")
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizers.scale_learning_rates(learning_rate_scale)
    optimizers.step()
    optimizers.zero_grad()
    return norm
