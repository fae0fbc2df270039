"""The sharding of parameters, gradients and optimizer states over ranks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Sharding:
    """The conversion between whole tensors and what a rank holds: here every tensor as a whole."""

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

    def join(self, locals_: Tensor, like: Sequence[Tensor]) -> Tensor:
        """Return whole tensors, from their shards [rows, n] one after the other, as [Rows, n]."""
        return locals_

    def split(self, wholes: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return this rank's shard of each tensor, from the whole ones [Rows, n] in a row."""
        return torch.split(wholes, [len(tensor) for tensor in like])

    def release(self, model: nn.Module) -> None:
        """Release the tensors that were gathered to compute; parameters are shards again."""


UNSHARDED = Sharding()


class Sharded(Sharding):
    """Ranks hold shards, as torch's DTensor, and gather them with FSDP2."""

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

    def join(self, locals_: Tensor, like: Sequence[Tensor]) -> Tensor:
        parts = locals_.split([len(self.local(tensor)) for tensor in like])
        wrapped = (self.wrap(part, tensor) for part, tensor in zip(parts, like, strict=True))
        return torch.cat([self.gather(tensor) for tensor in wrapped])

    def split(self, wholes: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
        parts = super().split(wholes, like)
        shards = (self.shard(part, tensor) for part, tensor in zip(parts, like, strict=True))
        return [self.local(shard) for shard in shards]

    def release(self, model: nn.Module) -> None:
        # Without a backward pass FSDP2 keeps parameters outside of blocks gathered, maybe in bf16.
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
