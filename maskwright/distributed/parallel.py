"""Data parallelism applied to a finished model: torch's DDP or FSDP2, nothing home-made.

The model is single-device code and stays so. Gradients are *sums* over ranks, because the loss of
every rank is already divided by the number of predictions of all: DDP's averaging is undone by a
factor, FSDP2's is switched off.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from maskwright.distributed.sharding import UNSHARDED, Sharded, Sharding
from maskwright.distributed.world import World


@dataclass(frozen=True)
class Parallel:
    """An objective on all ranks, and what a step has to know about it.

    Attributes:
        objective: called like the one that it was made from.
        loss_factor: losses are multiplied by it, to undo averaging over ranks.
        accumulating: a context for the backward passes of all micro-batches but the last, after
            which gradients travel.
        sharding: how parameters, gradients and optimizer states are spread.
    """

    objective: Callable[..., Any]
    loss_factor: float = 1.0
    accumulating: Callable[[], AbstractContextManager[Any]] = nullcontext
    sharding: Sharding = UNSHARDED


def checkpoint_activations(blocks: Iterable[nn.Module]) -> None:
    """Lets the backward pass compute the inside of every block again, instead of keeping it.

    About a third more arithmetic for a fraction of the memory (Chen et al. 2016,
    https://arxiv.org/abs/1604.06174).
    """
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def replicate(objective: nn.Module, world: World, device: torch.device) -> Parallel:
    """The whole model on every rank (DistributedDataParallel)."""
    ddp = DistributedDataParallel(
        objective,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
    )
    return Parallel(ddp, loss_factor=float(world.size), accumulating=ddp.no_sync)


def shard(
    model: nn.Module, blocks: Iterable[nn.Module], world: World, device: torch.device, bf16: bool
) -> Sharded:
    """Spreads parameters over ranks in place, block by block (FSDP2, ``fully_shard``).

    Args:
        model: on the CPU; its parts move to `device` one at a time.
        blocks: the modules that are gathered, used and let go again one after another; what is in
            none of them is gathered for the whole step.
        bf16: gather and compute in bf16; master weights and sums of gradients stay in fp32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=torch.float32
    )
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
        assert isinstance(module, FSDPModule)
        # Sums, not means. gloo knows no averaging, so that it takes both calls.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return Sharded()
