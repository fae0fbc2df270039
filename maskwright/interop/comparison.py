"""Comparison of a model's outputs with another library's: texts, padded batches, tolerances.

Shapes: B rows of L positions, D width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from maskwright.attention_context import context_from_lengths
from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.errors import ExportError
from maskwright.model_folder.folder import Loaded, LoadedModel

# fp32 has about seven digits, of which a deep model loses two. The bound is absolute for logits of
# up to 10, and relative for larger ones.
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-5
PYDOCS = "pydocs"  # the source of the built-in texts
AWKWARD = (
    "The larvae are black and feed on snails.",
    "Naïve cafés, Straßen and ÅNGSTRÖM: 6.02214·10²³ (±0.5 %)",
    "tabs\tand  blanks\nand lines",
    "someone@example.org wrote https://example.org/?q=1&r=2 at 10:45.",
    "Москва, 서울, 東京, ภาษาไทย, ﬁn, 🙂👍🏽",
    "!",
)
NUM_TEXTS = 24
MAX_TOKENS = 512  # tokens; longer inputs take time and reveal no other differences
MIN_TOKENS = 4
_CHARACTERS_PER_TOKEN = 20  # more than in any real text
_MAX_LOGITS = 1 << 25  # in one batch: 128 MiB
_MAX_ROWS = 8

# input_ids, attention_mask and, for classifiers, token_type_ids [B, L] -> logits [B, L, V]
Compute = Callable[..., Tensor]
PaddedRows = tuple[Tensor, Tensor]  # input_ids and attention_mask, each [B, L] int64


@dataclass(frozen=True)
class OutputComparison:
    """The difference between two computations of the same outputs.

    Attributes:
        what: the name of the outputs, for messages.
        largest: the largest absolute difference.
        allowed: the largest difference that rounding explains.
    """

    what: str
    largest: float
    allowed: float
    num_texts: int
    num_tokens: int

    def check(self, library: str) -> None:
        """Raise ExportError unless rounding explains the difference; it never explains NaN."""
        if not self.largest <= self.allowed:
            raise ExportError(
                f"{library} computes other outputs than the model: {self.what} differ by up "
                f"to {self.largest:.2g}, and {self.allowed:.2g} is allowed. Nothing was written. "
                "Report it: this is a bug in maskwright or in that library."
            )

    def describe(self) -> str:
        """Return the difference as part of a sentence."""
        return (
            f"largest difference of {self.what} {self.largest:.2g} ({self.allowed:.2g} is allowed)"
        )


def choose_texts(loaded: Loaded[Any], documents: Iterable[str] | None = None) -> Iterator[str]:
    """Yield texts with unusual characters, then beginnings of documents of increasing length.

    Args:
        documents: real text; None for the documentation in the Python environment (``pydocs``).
    """
    longest = min(loaded.model.config.max_position_embeddings, MAX_TOKENS)
    documents = (text for _, text in read_pydocs()) if documents is None else documents
    real = _cut(loaded, documents, np.geomspace(MIN_TOKENS, longest, NUM_TEXTS))
    special = loaded.tokenizer.special_tokens.values()
    for text in (*AWKWARD, *real):
        if not any(token in text for token in special):  # some libraries encode it as a token
            yield text


def _cut(loaded: Loaded[Any], documents: Iterable[str], lengths: Iterable[float]) -> Iterator[str]:
    """Yield the beginning of each document, with about as many tokens as `lengths` has."""
    extra = len(loaded.wrap([]))
    for document, length in zip(documents, lengths, strict=False):
        most = max(1, round(length) - extra)
        document = document[: most * _CHARACTERS_PER_TOKEN].strip()
        ends = loaded.tokenizer.encode_prompt(document).offsets[:most, 1]
        yield document[: ends[-1] if len(ends) else 0].strip()


def batch_rows(
    rows: Sequence[list[int]], vocab_size: int, pad_id: int, by_length: bool = False
) -> Iterator[tuple[list[int], PaddedRows]]:
    """Yield batches of rows with a bounded number of logits, and the indices of their rows.

    Args:
        by_length: group rows of similar lengths, which reduces padding.
    """
    most = max(1, min(_MAX_ROWS, _MAX_LOGITS // (max(map(len, rows)) * vocab_size)))
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]) if by_length else 0)
    for first in range(0, len(rows), most):
        indices = order[first : first + most]
        yield indices, pad_rows([rows[index] for index in indices], pad_id)


def pad_rows(rows: Sequence[list[int]], pad_id: int) -> PaddedRows:
    """Return all rows as one batch."""
    ids = [torch.tensor(row) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    padded = pad_sequence(ids, batch_first=True, padding_value=pad_id)
    return padded, pad_sequence(masks, batch_first=True)


@torch.no_grad()
def compare_logits(
    loaded: LoadedModel, batches: Iterable[PaddedRows], compute: Compute
) -> OutputComparison:
    """Compare the logits of `compute` with those of our model, without padding."""
    largest, scale, num_texts, num_tokens = 0.0, 0.0, 0, 0
    for input_ids, attention_mask in batches:
        real = attention_mask.bool()
        if loaded.model.config.next_token_prediction:
            real[:, 0] = False
        context = context_from_lengths(attention_mask.sum(1).tolist())
        positions = real.flatten().nonzero()[:, 0]
        ours = loaded.model(input_ids.flatten(), context, positions)
        theirs = compute(input_ids, attention_mask)[real]
        largest = max_or_nan(largest, (ours - theirs).abs().max().item())
        scale = max(scale, ours.abs().max().item())
        num_texts, num_tokens = num_texts + len(input_ids), num_tokens + len(ours)
    return OutputComparison("logits", largest, allow(scale), num_texts, num_tokens)


def allow(scale: float) -> float:
    """Return the largest difference that rounding explains for numbers of up to `scale`."""
    return max(TOLERANCE, RELATIVE_TOLERANCE * scale)


def max_or_nan(a: float, b: float) -> float:
    """Return the larger number; NaN if one is NaN."""
    return b if b != b or b > a else a
