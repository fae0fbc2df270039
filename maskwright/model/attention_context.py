"""Where the segments of a packed batch begin and end: all that attention needs to know.

T tokens packed in R rows of L, N segments. No segment crosses the end of a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maskwright.model.config import AttentionBackend


@dataclass(frozen=True)
class AttentionContext:
    """Segment boundaries of one packed batch, in the two forms that attention kernels want.

    Attributes:
        positions: [T] int64, the token's position inside its segment.
        segment_ids: [T], number of the token's segment inside its row; a row's unfilled tail is
            a segment of its own.
        cu_seqlens: [N + 1] int32, where segments begin in [T], and T at the end.
        max_seqlen: no segment is longer than this.
        row_length: L; T is a multiple of it.
        is_causal: whether tokens see no token after them.
    """

    positions: Tensor
    segment_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    row_length: int
    is_causal: bool = False

    def see(self, window: int | None) -> Tensor:
        """[R, 1, L, L] booleans: same segment, at most `window` tokens apart, and not later."""
        rows = self.segment_ids.view(-1, self.row_length)
        visible = rows[:, :, None] == rows[:, None, :]
        if window is not None and window < self.row_length - 1:
            place = torch.arange(self.row_length, device=rows.device)
            visible = visible & ((place[:, None] - place[None, :]).abs() <= window)
        if self.is_causal:
            visible = visible.tril()
        return visible.unsqueeze(1)

    def to(self, device: torch.device | str) -> "AttentionContext":
        """The same context with its tensors on `device`."""
        return replace(
            self,
            positions=self.positions.to(device),
            segment_ids=self.segment_ids.to(device),
            cu_seqlens=self.cu_seqlens.to(device),
        )


@dataclass(frozen=True)
class LayerContext:
    """What all layers of one type (global or local) share in one forward pass.

    Attributes:
        context: the segments.
        window: how many tokens to each side a token sees, inclusive; None = the whole segment.
        backend: how to compute attention, already chosen.
        visible: [R, 1, L, L], `AttentionContext.see` of that window, where the backend wants it.
        angles: cosines and sines [T, 1, K / 2] of the rotary positions, if there are any.
    """

    context: AttentionContext
    window: int | None
    backend: AttentionBackend
    visible: Tensor | None
    angles: tuple[Tensor, Tensor] | None


def context_from_lengths(
    lengths: Sequence[int], row_length: int | None = None, device: torch.device | str = "cpu"
) -> AttentionContext:
    """The context of plain padded rows: one segment a row, then the row's padding.

    Args:
        lengths: the real tokens of each row, at least 1.
        row_length: tokens in a row with its padding; default: the longest.
    """
    row_length = row_length or max(lengths)
    real = torch.tensor(lengths)[:, None]
    place = torch.arange(row_length)[None, :].expand(len(lengths), -1)
    padding = place >= real
    starts = torch.arange(len(lengths)) * row_length
    # A full row has an empty padding segment, which kernels and counts pass over.
    bounds = torch.stack((starts, starts + real[:, 0]), dim=1).flatten()
    total = torch.tensor([len(lengths) * row_length])
    return AttentionContext(
        positions=torch.where(padding, place - real, place).flatten(),
        segment_ids=padding.int().flatten(),
        cu_seqlens=torch.cat((bounds, total)).int(),
        max_seqlen=row_length,
        row_length=row_length,
    ).to(device)
