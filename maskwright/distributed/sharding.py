"""How parameters, gradients and optimizer states are spread over ranks, seen from outside."""

from torch import Tensor


class Unsharded:
    """Every rank has all of every tensor."""

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from its parts. All ranks must call it."""
        return tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        """This rank's part of a whole tensor, spread as `like` is."""
        return whole


UNSHARDED = Unsharded()


class Sharded(Unsharded):
    """Ranks have parts of tensors, as torch's DTensor."""

    def whole(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, whole: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor):
            return whole
        # Every rank has the whole and keeps its own part: nothing travels.
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
