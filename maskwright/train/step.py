"""One optimizer step, whose gradient does not depend on how the batch is split.

The loss of a term is the sum over the predictions of all micro-batches of all ranks, divided by
their number, which is known before the first forward pass. So 1 x 64 and 8 x 8 rows, on one rank
or on four, have the same gradient. `WeightAverage` follows the steps, and `LogWindow` has the means
over the steps since the last record.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.data.batch import Batch
from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import LoadedStep
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import World
from maskwright.model.masked_lm import Network
from maskwright.objectives.objective import Term, TermSums
from maskwright.optim.build import Optimizers
from maskwright.train.config import Precision
from maskwright.train.device import autocast
from maskwright.train.weight_average import WeightAverage

Counts = Mapping[str, float]  # predictions by term, of all ranks together


def seed_dropout(seed: int, step: int, rank: int = 0) -> None:
    """Make dropout a function of (seed, step, rank): no generator state has to be saved."""
    # On a CPU alone, `torch.manual_seed` would format the stack, which takes 0.3 ms.
    has_gpu = torch.accelerator.is_available()
    seed_all = torch.manual_seed if has_gpu else torch.default_generator.manual_seed
    seed_all(int(derive_keys(seed, step, rank)[0]) % 2**63)


def scale_losses(terms: Mapping[str, Term], num_predictions: Counts) -> Tensor:
    """Return [2, N] for N terms: the factors of their sums in the loss, and the predictions."""
    totals = [max(num_predictions[name], 1) for name in terms]
    weights = [term.weight / total for term, total in zip(terms.values(), totals, strict=True)]
    return torch.tensor([weights, totals])


def add_gradients(parallel: Parallel, batch: Batch, scales: Tensor, precision: Precision) -> Tensor:
    """Add the gradient of one micro-batch to the parameters.

    Args:
        batch: on the device.
        scales: [2, N], `scale_losses` on the device.

    Returns:
        [N, 2], the micro-batch's part of the mean loss and of the correct predictions.
    """
    with autocast(precision, scales.device):
        sums: Mapping[str, TermSums] = parallel.loss(batch)
    losses = torch.stack([term.loss for term in sums.values()])
    (losses * scales[0]).sum().backward()
    correct = torch.stack([term.num_correct for term in sums.values()]).float()
    return torch.stack([losses.detach() / scales[1], correct], dim=1)


def compute_gradients(
    parallel: Parallel,
    loaded: LoadedStep,
    terms: Mapping[str, Term],
    num_predictions: Counts,
    device: torch.device,
    precision: Precision,
) -> Tensor:
    """Add the gradient of the loss to the parameters.

    Args:
        terms: the terms of the objective.
        num_predictions: number of predictions of each term, of all ranks together.

    Returns:
        [N, 2], this rank's part of the mean loss and of the number of correct predictions of each
        term. Without predictions, they and the gradients are 0.
    """
    scales = scale_losses(terms, num_predictions).to(device)
    shares = torch.zeros(len(terms), 2, device=device)
    for batch in loaded.micro_batches:
        shares = shares + add_gradients(parallel, batch.to(device), scales, precision)
    return shares


def count_predictions(loaded: LoadedStep, terms: Mapping[str, Term]) -> dict[str, int]:
    """Return the number of this rank's predictions in a step, by term."""
    return {name: sum(map(term.count, loaded.micro_batches)) for name, term in terms.items()}


def clip_gradients(model: nn.Module, limit: float, parallel: Parallel) -> Tensor:
    """Clip the gradients to the norm `limit` (0: none); return their norm before, []."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit or float("inf"))
    return parallel.sharding.gather(norm)


@dataclass(frozen=True)
class StepFigures:
    """The results of a step, which its device may not have computed yet.

    Attributes:
        values: [2 N + 1], fp32: mean loss and correct predictions of each of N terms, of all ranks
            together, and the norm of the gradient.
        is_good: [], on the device: True if all values are finite.
        copied: the event after which a GPU has copied `values` to memory.
    """

    values: Tensor
    is_good: Tensor
    copied: torch.cuda.Event | None = None

    @classmethod
    def join(cls, sums: Tensor, norm: Tensor) -> "StepFigures":
        """Join what all ranks found: [N, 2] by term, and the norm of the gradient []."""
        values = torch.cat([sums.flatten(), norm.float()[None]])
        return cls(values, values.isfinite().all())

    def start_copy(self) -> "StepFigures":
        """Begin to copy the values to memory, if they are on a GPU."""
        if not self.values.is_cuda:
            return self
        copy, copied = self.values.to("cpu", non_blocking=True), torch.cuda.Event()
        copied.record(torch.cuda.current_stream(self.values.device))
        return StepFigures(copy, self.is_good, copied)

    def read(self) -> list[float]:
        """Return the values; wait for their step, but not for one that was started later."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.values.tolist()


@dataclass(frozen=True)
class StepParts:
    """What a step works on, apart from its batch and numbers.

    Attributes:
        average: the moving average of the weights, if there is one.
    """

    model: Network
    parallel: Parallel
    terms: Mapping[str, Term]
    optimizers: Optimizers
    average: WeightAverage | None
    world: World
    device: torch.device
    precision: Precision
    grad_clip: float

    def set_rates(self, learning_rate_scale: float, step: int) -> None:
        """Set the numbers that the update reads on the device; `step` counts from 0."""
        self.optimizers.scale_learning_rates(learning_rate_scale)
        if self.average:
            self.average.set_step(step)

    def run(self, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        """Do one step at the rates that were set; begin to copy its figures to memory."""
        figures = self.run_keeping_gradients(loaded, num_predictions)
        self.optimizers.zero_grad()
        return figures.start_copy()

    def run_keeping_gradients(self, loaded: LoadedStep, num_predictions: Counts) -> StepFigures:
        """Do one step and keep its gradients, which `capture` sets to 0 for its graphs."""
        own = compute_gradients(
            self.parallel, loaded, self.terms, num_predictions, self.device, self.precision
        )
        self.sum_over_ranks(own)
        return self.apply_gradients(own)

    def sum_over_ranks(self, own: Tensor) -> None:
        """Sum figures [N, 2] in place, and gradients unless the backward pass has done it."""
        gradients = () if self.parallel.reduces else self.gradients()
        self.world.sum_tensors([own, *gradients])

    def gradients(self) -> list[Tensor]:
        """Return the gradients of all parameters that have one."""
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def apply_gradients(self, sums: Tensor) -> StepFigures:
        """Clip the gradients and apply them; `sums` [N, 2] is what all ranks found, by term.

        Weights, optimizers and average do not change if a figure is not finite.
        """
        norm = clip_gradients(self.model, self.grad_clip, self.parallel)
        figures = StepFigures.join(sums, norm)
        self.optimizers.step(figures.is_good)
        if self.average:
            self.average.update(self.model, figures.is_good)
        return figures
