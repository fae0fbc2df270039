"""One optimizer step: the loss of a whole batch, however it is cut.

The loss of a term is the sum over all predictions of all micro-batches of all ranks divided by
their number, which is known before the first is computed; so 1 x 64 and 8 x 8 rows, on one rank or
on four, give the same gradient.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import LoadedStep
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import World
from maskwright.objectives.objective import Term, TermSums
from maskwright.optim.build import Optimizers
from maskwright.train.config import Precision
from maskwright.train.device import autocast


def seed_dropout(seed: int, step: int, rank: int = 0) -> None:
    """Make dropout a function of (seed, step, rank): no generator state has to be saved."""
    torch.manual_seed(int(derive_keys(seed, step, rank)[0]) % 2**63)


def compute_gradients(
    parallel: Parallel,
    loaded: LoadedStep,
    terms: Mapping[str, Term],
    num_predictions: Mapping[str, float],
    device: torch.device,
    precision: Precision,
) -> dict[str, TermSums]:
    """Add the gradient of the loss to the parameters.

    Args:
        terms: of the objective.
        num_predictions: those of all ranks together, for each term.

    Returns:
        What this rank's rows add to the mean loss and to the number of right predictions of each
        term; all are 0, and so are the gradients, where nothing is predicted.
    """
    totals = {name: max(num_predictions[name], 1) for name in terms}
    zero = torch.zeros((), device=device)
    shares = dict.fromkeys(terms, TermSums(zero, zero.long()))
    last = len(loaded.micro_batches) - 1
    for number, batch in enumerate(loaded.micro_batches):
        batch = batch.to(device)
        with parallel.accumulating() if number < last else nullcontext():
            with autocast(precision, device):
                sums: Mapping[str, TermSums] = parallel.objective(batch)
            weighted = [sums[name].loss * (terms[name].weight / totals[name]) for name in terms]
            (torch.stack(weighted).sum() * parallel.loss_factor).backward()
        shares = {
            name: TermSums(
                share.loss + sums[name].loss.detach() / totals[name],
                share.num_correct + sums[name].num_correct,
            )
            for name, share in shares.items()
        }
    return shares


def count_predictions(loaded: LoadedStep, terms: Mapping[str, Term]) -> dict[str, int]:
    """Return the number of this rank's predictions in a step, for each term."""
    return {name: sum(map(term.count, loaded.micro_batches)) for name, term in terms.items()}


def clip_gradients(model: nn.Module, limit: float, parallel: Parallel) -> Tensor:
    """Scale the gradients down to the norm `limit` (0: never); return their norm before, []."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit or float("inf"))
    return parallel.sharding.gather(norm)


@dataclass(frozen=True)
class StepFigures:
    """The results of a step, on the device: reading them waits until the step is done.

    Attributes:
        values: [2 N + 1] in fp32: mean loss and right predictions of each of N terms, of all ranks
            together, and the norm of the gradient.
        is_good: [], true if all of them are finite.
    """

    values: Tensor
    is_good: Tensor

    @classmethod
    def gather(cls, own: Mapping[str, TermSums], norm: Tensor, world: World) -> "StepFigures":
        """Build the figures from this rank's part of each term, and a norm that all ranks know."""
        sums = torch.stack([figure.float() for term in own.values() for figure in term])
        values = torch.cat([world.sum_tensor(sums), norm.float()[None]])
        return cls(values, values.isfinite().all())


def update_weights(
    optimizers: Optimizers, learning_rate_scale: float, is_good: Tensor | None = None
) -> None:
    """Apply the gradients; where `is_good` [] is false, leave everything as it is."""
    optimizers.scale_learning_rates(learning_rate_scale)
    optimizers.step(is_good)
