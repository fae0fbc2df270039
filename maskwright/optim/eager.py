"""torch's optimizers without the wrappers for torch's compiler: no optimizer is compiled here.

The wrappers import the compiler at the first call. Without them the first step of a model of two
small layers ends after 3.7 seconds of CPU time instead of 5.1 (two cores, torch 2.13).
"""

import inspect

import torch
from torch import Tensor


class EagerOptimizer(torch.optim.Optimizer):
    """An optimizer with the unwrapped methods of torch's.

    Attributes:
        slots: names of the tensors in the state of a parameter.
        num_large_slots: how many of them have the size of the parameter.
        found_inf: [] on the device; if it is 1, a step changes nothing. The name is torch's.
    """

    slots: tuple[str, ...] = ()
    num_large_slots = 1

    found_inf: Tensor | None = None
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def forget_layout(self) -> None:
        """Discard what was derived from the tensors of the state, because they were replaced."""


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019)."""

    slots = ("step", "exp_avg", "exp_avg_sq")
    num_large_slots = 2
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
