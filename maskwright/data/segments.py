"""Documents cut into segments: the spans of tokens that one attention window may see.

A document of n tokens becomes ``ceil(n / max_tokens)`` segments, all full but the last. Only one
running count a document is kept, so segment i is found by a binary search.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class SegmentTable:
    """Where each segment of a corpus lies.

    Args:
        document_lengths: [D] tokens of each document; empty documents have no segment.
        max_tokens: the most tokens in one segment, special tokens not counted.
    """

    def __init__(self, document_lengths: Ints, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        counts = -(-document_lengths // max_tokens)
        self._first_segment = np.concatenate([[0], np.cumsum(counts)])
        self._first_token = np.concatenate([[0], np.cumsum(document_lengths)])

    def __len__(self) -> int:
        return int(self._first_segment[-1])

    @property
    def num_tokens(self) -> int:
        """Of the whole corpus, special tokens not counted."""
        return int(self._first_token[-1])

    def locate(self, indices: Ints) -> tuple[Ints, Ints]:
        """Start (in tokens of the whole corpus) and length of each segment: [n] -> [n], [n]."""
        documents = np.searchsorted(self._first_segment, indices, side="right") - 1
        offsets = (indices - self._first_segment[documents]) * self.max_tokens
        starts = self._first_token[documents] + offsets
        lengths = np.minimum(self.max_tokens, self._first_token[documents + 1] - starts)
        return starts, lengths
