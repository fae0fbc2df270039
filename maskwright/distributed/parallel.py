"""Data parallelism of a built model: whole copies, or FSDP2, and what each rank stores.

The model itself is single-device code. Gradients are *sums* over ranks, because every rank divides
its loss by the number of predictions of all ranks. Of whole copies the step sums them in one
message after the last micro-batch (`StepParts`), recorded as a CUDA graph or not; FSDP2 sums them
in its backward pass, and its averaging is switched off. `Sharding` says which rows of a matrix, of
its gradient and of its optimizer state a rank has.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import Tensor, nn

from maskwright.distributed.world import World
from maskwright.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# torch types these in part.
_collectives: Any = dist
_checkpoint: Any = torch.utils.checkpoint


class Exchange:
    """The exchange of B matrices between the ranks that store their rows and those that own them.

    Each matrix [m, n] has one owner, which computes its update: here the only rank, which stores
    all rows. All ranks must call each method.

    Attributes:
        own: the matrices that this rank owns.
    """

    own = slice(None)

    def collect(self, rows: Tensor) -> Tensor:
        """Return all rows of the own matrices, from the rows [R, n] that this rank stores."""
        return rows

    def deliver(self, rows: Tensor) -> Tensor:
        """Return the rows that this rank stores, from all rows of its own matrices."""
        return rows

    def complete(self, values: Tensor) -> None:
        """Replace in place the values [B, …] of the matrices that others own by those of others."""


class Sharding:
    """The conversion between whole tensors and what a rank holds: here every tensor as a whole.

    Attributes:
        num_shards: the number of ranks that hold a tensor together.
    """

    num_shards = 1

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor of a shard. All ranks must call it."""
        return tensor

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return this rank's shard of a whole tensor, sharded as `like`."""
        return whole

    def local(self, tensor: Tensor) -> Tensor:
        """Return the memory of this rank's shard."""
        return tensor

    def wrap(self, local: Tensor, like: Tensor) -> Tensor:
        """Return the tensor whose shard on this rank is `local`, sharded as `like`."""
        return local

    def exchange(self, parameters: Sequence[Tensor], num_rows: int) -> Exchange:
        """Return the exchange of the matrices of `num_rows` rows that `parameters` consist of."""
        return Exchange()

    def release(self, model: nn.Module) -> None:
        """Release the tensors that were gathered to compute; parameters are shards again."""


UNSHARDED = Sharding()


class Replicated(Sharding):
    """Every rank holds every tensor as a whole, and owns some matrices."""

    def exchange(self, parameters: Sequence[Tensor], num_rows: int) -> Exchange:
        group = dist.group.WORLD
        assert group is not None
        return _ReplicatedExchange(sum(map(len, parameters)), num_rows, group)


class Sharded(Sharding):
    """Ranks hold shards, as torch's DTensor, and gather them with FSDP2.

    Args:
        mesh: the ranks; those along its last dimension hold different shards.
    """

    def __init__(self, mesh: "DeviceMesh") -> None:
        self.group = mesh.get_group(mesh.ndim - 1)
        self.num_shards = self.group.size()

    def exchange(self, parameters: Sequence[Tensor], num_rows: int) -> Exchange:
        return _ShardedExchange(parameters, num_rows, self.group)

    def gather(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole
        # Every rank has the whole tensor and keeps its own shard: no communication.
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)

    def local(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def wrap(self, local: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        if not isinstance(like, DTensor):
            return local
        where = (like.device_mesh, like.placements)
        return DTensor.from_local(local, *where, shape=like.shape, stride=like.stride())

    def release(self, model: nn.Module) -> None:
        # Without a backward pass FSDP2 keeps parameters outside of blocks gathered, maybe in bf16.
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


class _GroupExchange(Exchange):
    """The exchange within a group of G ranks: rank r owns about B / G matrices in a row."""

    def __init__(self, total_rows: int, num_rows: int, group: dist.ProcessGroup) -> None:
        count, size, rank = total_rows // num_rows, group.size(), group.rank()
        self.group = group
        self.bounds = [count * number // size for number in range(size + 1)]  # in matrices
        self.own = slice(self.bounds[rank], self.bounds[rank + 1])
        self.row_bounds = [bound * num_rows for bound in self.bounds]
        self.own_rows = slice(self.row_bounds[rank], self.row_bounds[rank + 1])

    def complete(self, values: Tensor) -> None:
        values[: self.own.start] = 0
        values[self.own.stop :] = 0
        _collectives.all_reduce(values, group=self.group)  # x + 0 is exact


class _ReplicatedExchange(_GroupExchange):
    """Every rank stores all rows."""

    def collect(self, rows: Tensor) -> Tensor:
        return rows[self.own_rows]

    def deliver(self, rows: Tensor) -> Tensor:
        counts = [end - start for start, end in pairwise(self.row_bounds)]
        # gloo gathers tensors of one size only.
        padded = nn.functional.pad(rows, (0, 0, 0, max(counts) - len(rows)))
        gathered = [torch.empty_like(padded) for _ in counts]
        _collectives.all_gather(gathered, padded, group=self.group)
        return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])


class _ShardedExchange(_GroupExchange):
    """Rank r stores the r-th of G chunks of each parameter, as `torch.chunk` cuts its rows.

    The rows that a rank stores are in the order of their owners. An owner receives its rows in the
    order of the ranks that store them.
    """

    def __init__(
        self, parameters: Sequence[Tensor], num_rows: int, group: dist.ProcessGroup
    ) -> None:
        lengths = [*map(len, parameters)]
        super().__init__(sum(lengths), num_rows, group)
        size, rank = group.size(), group.rank()
        # The rank that stores each row, and the rank that owns it.
        stored = torch.cat([torch.arange(length) // -(-length // size) for length in lengths])
        owned = torch.repeat_interleave(torch.tensor(self.row_bounds).diff())
        self.sent = [*map(int, owned[stored == rank].bincount(minlength=size))]
        self.received = [*map(int, stored[owned == rank].bincount(minlength=size))]
        self.arrival = stored[owned == rank].argsort(stable=True).to(parameters[0].device)

    def collect(self, rows: Tensor) -> Tensor:
        received = rows.new_empty(len(self.arrival), rows.shape[1])
        _collectives.all_to_all_single(received, rows, self.received, self.sent, group=self.group)
        return torch.empty_like(received).index_copy_(0, self.arrival, received)

    def deliver(self, rows: Tensor) -> Tensor:
        stored = rows.new_empty(sum(self.sent), rows.shape[1])
        back = (self.sent, self.received)
        _collectives.all_to_all_single(stored, rows[self.arrival], *back, group=self.group)
        return stored


@dataclass(frozen=True)
class Parallel:
    """A loss that runs on all ranks.

    Attributes:
        loss: called like the loss that it wraps.
        sharding: how parameters, gradients and optimizer states are sharded.
        reduces: True if the backward pass sums gradients over ranks; else the step does.
    """

    loss: Callable[..., Any]
    sharding: Sharding = UNSHARDED
    reduces: bool = True


def checkpoint_activations(blocks: Iterable[nn.Module]) -> None:
    """Recompute the activations inside every block in the backward pass instead of storing them.

    This costs about a third more arithmetic and takes a fraction of the memory (Chen et al. 2016,
    https://arxiv.org/abs/1604.06174).
    """
    for block in blocks:
        block.forward = partial(_checkpoint.checkpoint, block.forward, use_reentrant=False)


def shard(model: nn.Module, blocks: Iterable[nn.Module], mesh: "DeviceMesh", bf16: bool) -> Sharded:
    """Shard parameters over ranks in place, block by block (FSDP2, ``fully_shard``).

    Args:
        model: a model on the CPU; its parts move to the device of `mesh` one at a time.
        blocks: the modules that are gathered, used and released one after another; all other
            parameters are gathered for the whole step.
        mesh: of `build_mesh`.
        bf16: gather and compute in bf16; master weights and sums of gradients are fp32.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # autocast does; the angles of positions stay fp32
    )
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
        assert isinstance(module, FSDPModule)
        # Sums, not means. gloo cannot average, so both calls are needed.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return Sharded(mesh)


def build_mesh(world: World, device: torch.device, by_node: bool) -> "DeviceMesh":
    """Return the ranks that hold different shards, the last dimension, and copies of shards.

    Args:
        by_node: shard within a node and copy between nodes (hybrid sharding, HSDP: Zhao et al.
            2023, arXiv 2304.11277); otherwise shard over all ranks.

    Raises:
        ConfigError: the ranks are not split into nodes of one size.
    """
    from torch.distributed.device_mesh import init_device_mesh

    if not by_node:
        return init_device_mesh(device.type, (world.size,))
    if not world.node_size or world.size % world.node_size:
        rule = f"must be set for train.parallel = hsdp and divide WORLD_SIZE = {world.size}"
        remedy = "Start the same number of processes on each machine, with torchrun."
        raise ConfigError("LOCAL_WORLD_SIZE", world.node_size, rule, remedy)
    shape = (world.size // world.node_size, world.node_size)
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
