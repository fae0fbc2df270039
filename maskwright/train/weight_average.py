"""Exponential moving average of the weights (EMA), which validations and the saved model use."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from maskwright.optim.build import as_input


class WeightAverage:
    """The average of the weights: ``decay * average + (1 - decay) * weights`` after every step.

    The decay rises with the number of steps as ``(1 + n) / (10 + n)`` up to its value, so that
    the initial random weights soon have no influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.averages: dict[str, Tensor] = {}
        self.restart(model)
        # A tensor: a captured step repeats its operators with the numbers it was captured with.
        self._weight = torch.zeros((), device=next(model.parameters()).device)

    def restart(self, model: nn.Module) -> None:
        """Restart from the current weights of the model."""
        self.averages = {name: p.detach().clone() for name, p in model.named_parameters()}

    def set_step(self, step: int) -> None:
        """Set the number of the next step, from 0, on which the weight of its weights depends."""
        weight = torch.tensor(1 - min(self.decay, (1 + step) / (10 + step)))
        self._weight.copy_(as_input(weight, self._weight), non_blocking=True)

    @torch.no_grad()
    def update(self, model: nn.Module, is_good: Tensor | None = None) -> None:
        """Add the weights after a step; if `is_good` [] is False, nothing changes."""
        weight = self._weight if is_good is None else self._weight * is_good
        for name, parameter in model.named_parameters():
            self.averages[name].lerp_(parameter, weight)

    @contextmanager
    def applied(self, model: nn.Module) -> Generator[None]:
        """Set the model's weights to the averages within this context."""
        with torch.no_grad():
            kept = {name: p.detach().clone() for name, p in model.named_parameters()}
            self._copy(self.averages, model)
            try:
                yield
            finally:
                self._copy(kept, model)

    @staticmethod
    def _copy(tensors: dict[str, Tensor], model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
