"""How parameters, gradients and optimizer states are spread over ranks, seen from outside."""

from typing import Protocol

from torch import Tensor, nn


class Sharding(Protocol):
    """Where the parts of tensors are."""

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from its parts. All ranks must call it."""
        ...

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """This rank's part of a whole tensor, spread as `like` is."""
        ...

    def release(self, model: nn.Module) -> None:
        """Lets go of what was put together to compute; parameters are parts again."""
        ...


class Unsharded:
    """Every rank has all of every tensor."""

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        return whole

    def release(self, model: nn.Module) -> None:
        pass


UNSHARDED = Unsharded()


class Sharded:
    """Ranks have parts of tensors, as torch's DTensor, and put them together with FSDP2."""

    def whole(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole
        # Every rank has the whole and keeps its own part: nothing travels.
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)

    def release(self, model: nn.Module) -> None:
        # Without a backward pass FSDP2 keeps what is in no block: whole, and in bf16 if need be.
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
