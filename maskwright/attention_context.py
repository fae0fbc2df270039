"""The segment boundaries of a packed batch, which define its attention mask.

A batch has T tokens in R rows of length L, and N segments. No segment crosses the end of a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionContext:
    """Segment boundaries of one packed batch, in the two forms that attention kernels need.

    Attributes:
        positions: [T] int64, the token's position inside its segment.
        segment_ids: [T], index of the token's segment in its row; the padding of a row is a
            segment of its own.
        cu_seqlens: [N + 1] int32, the first token of each segment, and T at the end.
        max_seqlen: upper bound of the segment lengths.
        row_length: L; T is a multiple of it.
        is_causal: True if tokens do not attend to later tokens.
    """

    positions: Tensor
    segment_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    row_length: int
    is_causal: bool = False

    def attention_mask(self, window: int | None) -> Tensor:
        """Return [R, 1, L, L] booleans: same segment, within `window`, not later if causal."""
        rows = self.segment_ids.view(-1, self.row_length)
        mask = rows[:, :, None] == rows[:, None, :]
        if window is not None and window < self.row_length - 1:
            position = torch.arange(self.row_length, device=rows.device)
            mask = mask & ((position[:, None] - position[None, :]).abs() <= window)
        if self.is_causal:
            mask = mask.tril()
        return mask.unsqueeze(1)

    def to(self, device: torch.device | str) -> "AttentionContext":
        """Return the same context with its tensors on `device`."""
        return self.map_tensors(lambda tensor: tensor.to(device))

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "AttentionContext":
        """Return the same context with `change` applied to each tensor."""
        return replace(
            self,
            positions=change(self.positions),
            segment_ids=change(self.segment_ids),
            cu_seqlens=change(self.cu_seqlens),
        )


def context_from_lengths(
    lengths: Sequence[int], row_length: int | None = None, device: torch.device | str = "cpu"
) -> AttentionContext:
    """Return the context of plain padded rows: one segment a row, then the row's padding.

    Args:
        lengths: number of real tokens of each row, at least 1.
        row_length: tokens in a row, padding included; default: the longest of `lengths`.
    """
    row_length = row_length or max(lengths)
    real = torch.tensor(lengths)[:, None]
    position = torch.arange(row_length)[None, :].expand(len(lengths), -1)
    padding = position >= real
    starts = torch.arange(len(lengths)) * row_length
    # A full row has an empty padding segment, which kernels and counts skip.
    bounds = torch.stack((starts, starts + real[:, 0]), dim=1).flatten()
    total = torch.tensor([len(lengths) * row_length])
    return AttentionContext(
        positions=torch.where(padding, position - real, position).flatten(),
        segment_ids=padding.int().flatten(),
        cu_seqlens=torch.cat((bounds, total)).int(),
        max_seqlen=row_length,
        row_length=row_length,
    ).to(device)
