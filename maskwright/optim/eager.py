"""torch's optimizers without torch's compiler, which nobody compiles here."""

import inspect

import torch
from torch import Tensor


class EagerOptimizer(torch.optim.Optimizer):
    """An optimizer whose methods are what torch wraps for its compiler.

    The wrappers import the compiler when they are first called, which makes the start of every
    training a second and a half longer.

    Attributes:
        found_inf: [] on the device; where it is 1, a step changes nothing. The name is torch's.
    """

    found_inf: Tensor | None = None
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
