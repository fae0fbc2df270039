"""One optimizer step: the loss of a whole batch, however it is cut.

The loss is the sum over all predictions of all micro-batches of all ranks divided by their number,
which is known before the first is computed; so 1 x 64 and 8 x 8 rows, on one rank or on four, give
the same gradient.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from maskwright.data.draws import derive_keys
from maskwright.data.loader import LoadedStep
from maskwright.distributed.parallel import Parallel
from maskwright.objectives.mlm import context_of
from maskwright.optim.build import Optimizers
from maskwright.train.config import Precision
from maskwright.train.device import autocast


def seed_dropout(seed: int, step: int, rank: int = 0) -> None:
    """Makes dropout a function of (seed, step, rank): no generator state has to be saved."""
    torch.manual_seed(int(derive_keys(seed, step, rank)[0]) % 2**63)


def compute_gradients(
    parallel: Parallel,
    loaded: LoadedStep,
    num_predictions: float,
    device: torch.device,
    precision: Precision,
) -> tuple[Tensor, Tensor]:
    """Adds the gradient of the mean loss to the parameters.

    Args:
        num_predictions: those of all ranks together.

    Returns:
        What this rank's rows add to the loss and to the number of right predictions; both are 0,
        and so are the gradients, where nothing is predicted.
    """
    total = max(num_predictions, 1)
    loss = torch.zeros((), device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    last = len(loaded.micro_batches) - 1
    for number, batch in enumerate(loaded.micro_batches):
        batch = batch.to(device)
        with parallel.accumulating() if number < last else nullcontext():
            with autocast(precision, device):
                sums = parallel.objective(
                    batch.input_ids, context_of(batch), batch.masked_positions, batch.masked_labels
                )
            (sums.loss * (parallel.loss_factor / total)).backward()
        loss += sums.loss.detach() / total
        correct += sums.num_correct
    return loss, correct


def clip_gradients(model: nn.Module, limit: float, parallel: Parallel) -> float:
    """Scales the gradients down to the norm `limit` (0: never); returns their norm before."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit or float("inf"))
    return parallel.sharding.whole(norm).item()


def update_weights(optimizers: Optimizers, learning_rate_scale: float) -> None:
    """Applies the gradients."""
    optimizers.scale_learning_rates(learning_rate_scale)
    optimizers.step()
