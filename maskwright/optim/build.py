"""The optimizers of a model, built from a configuration, as one object with one schedule."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from maskwright.distributed.parallel import UNSHARDED, Sharding
from maskwright.errors import CheckpointError
from maskwright.optim.config import OptimConfig
from maskwright.optim.eager import AdamW, EagerOptimizer
from maskwright.optim.groups import divide_parameters
from maskwright.optim.muon import Muon


class Optimizers:
    """The optimizers of one model; each parameter belongs to exactly one.

    State is read and written by parameter name (``exp_avg/blocks.0.mlp.output.weight``), so a
    checkpoint is plain tensors and does not depend on the order of parameters.

    Learning rates are tensors on the device, because a captured step (`maskwright.train.capture`)
    repeats its operators with the numbers that it was captured with.
    """

    def __init__(self, optimizers: list[EagerOptimizer], names: Mapping[Tensor, str]) -> None:
        self.optimizers, self._names = optimizers, names
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._peaks = torch.tensor([group["lr"] for group in groups], dtype=torch.float64)
        device = next(iter(names)).device
        # torch's fused AdamW reads the rate as fp32 on a GPU, and as fp64 on a CPU.
        dtype = torch.float64 if device.type == "cpu" else torch.float32
        self._rates = self._peaks.to(device, dtype, copy=True)
        for group, rate in zip(groups, self._rates.unbind(), strict=True):
            group["lr"] = rate

    @property
    def peak_learning_rate(self) -> float:
        """The peak rate of the first optimizer, for logs."""
        return float(self._peaks[0])

    def scale_learning_rates(self, scale: float) -> None:
        """Set every learning rate to `scale` times its peak."""
        self._rates.copy_(as_input(self._peaks * scale, self._rates), non_blocking=True)

    def step(self, is_good: Tensor | None = None) -> None:
        """Update all parameters, unless `is_good` ([], on the device) is False.

        The device decides, so that the host does not wait for it. torch's fused optimizers change
        neither weights nor state if their attribute ``found_inf`` is 1, a feature for mixed
        precision; Muon does the same.
        """
        found_inf = None if is_good is None else (~is_good).float()
        for optimizer in self.optimizers:
            optimizer.found_inf = found_inf
            optimizer.step()

    def zero_grad(self) -> None:
        """Remove all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return all state as tensors by ``slot/parameter``; scalars are 0-dimensional."""
        return {
            f"{slot}/{self._names[parameter]}": torch.as_tensor(value)
            for optimizer in self.optimizers
            for parameter, slots in optimizer.state.items()
            for slot, value in slots.items()
        }

    def estimate_state_bytes(self) -> int:
        """Return the bytes of all state after the first step, over all ranks together."""
        return sum(
            parameter.numel() * parameter.element_size() * optimizer.num_large_slots
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def allocate_state(self, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
        """Allocate state of these names and shapes; return its tensors for the caller to fill.

        State of the shape of its parameter is sharded like the parameter.

        Raises:
            CheckpointError: a name belongs to no parameter of this model, or is the state of an
                optimizer that is not the parameter's.
        """
        owners = {
            self._names[parameter]: (optimizer, parameter)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for key, shape in shapes.items():
            slot, _, name = key.partition("/")
            if name not in owners:
                raise CheckpointError(f"optimizer state {key} belongs to no parameter of the model")
            optimizer, parameter = owners[name]
            if slot not in optimizer.slots:
                raise CheckpointError(
                    f"optimizer state {key} is of another optimizer than the parameter has in this "
                    "version. Start a new run from the model of the run: --init-from"
                )
            # torch's fused AdamW requires its step count in fp32 on the parameter's device.
            optimizer.state[parameter][slot] = (
                torch.zeros_like(parameter, requires_grad=False)
                if shape == parameter.shape
                else torch.zeros(shape, device=parameter.device)
            )
        for optimizer in self.optimizers:
            optimizer.forget_layout()
        return self.state_tensors()


def as_input(values: Tensor, like: Tensor) -> Tensor:
    """Return values in the dtype of `like`, pinned, for tensors that a captured step reads.

    The host does not wait for their copy to the device.
    """
    values = values.to(like.dtype)
    return values.pin_memory() if like.is_cuda else values


def build_optimizers(
    config: OptimConfig,
    named_parameters: Iterable[tuple[str, nn.Parameter]],
    num_stacked: Mapping[str, int],
    sharding: Sharding = UNSHARDED,
    dtype: torch.dtype = torch.float32,
) -> Optimizers:
    """Return the optimizers for the parameters of a model, divided by `maskwright.optim.groups`.

    Args:
        num_stacked: the number of matrices in each parameter that has several, by its name.
        sharding: how the parameters are sharded over ranks.
        dtype: precision of Muon's orthogonalization; weights and state are fp32.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in named_parameters}
    hidden, matrices, vectors = divide_parameters(names)
    if config.name != "muon":
        hidden, matrices = [], [p for p in names if p.ndim >= 2]
    optimizers: list[EagerOptimizer] = [
        AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            fused=True,  # takes a third of the time of the default, on a CPU too
            capturable=next(iter(names)).is_cuda,
        )
    ]
    if hidden:
        optimizers.append(
            Muon(
                hidden,
                [num_stacked.get(names[p], 1) for p in hidden],
                lr=config.muon_learning_rate,
                momentum=config.momentum,
                weight_decay=config.muon_weight_decay,
                num_steps=config.newton_schulz_steps,
                beta2=config.muon_beta2,
                sharding=sharding,
                dtype=dtype,
            )
        )
    return Optimizers(optimizers, names)
