"""The sharding of parameters, gradients and optimizer states over ranks."""

from torch import Tensor, nn


class Sharding:
    """The conversion between whole tensors and what a rank holds: here every tensor as a whole."""

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the whole tensor of a shard. All ranks must call it."""
        return tensor

    def shard(self, whole: Tensor, like: Tensor) -> Tensor:
        """Return this rank's shard of a whole tensor, sharded as `like`."""
        return whole

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

    def release(self, model: nn.Module) -> None:
        # Without a backward pass FSDP2 keeps parameters outside of blocks gathered, maybe in bf16.
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
