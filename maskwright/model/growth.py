"""A vocabulary that grows: rows for new tokens, made of the rows of the tokens that spelled them.

A new row is the mean of the old ones, so the model begins with what it knew of the pieces. Rows
that only fill up a round size are the mean of all: Hewitt, "Initializing New Word Embeddings for
Pretrained Language Models", 2021, shows that such a row can take at most a share of one in V from
the others' probability, where a random one may take nearly all.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

# [V, D] or [V]; a tied decoder is the word embeddings and has no name of its own.
_TABLES = ("encoder.embeddings.word.weight", "head.decoder.weight", "head.decoder.bias")


def grow_vocabulary(
    tensors: Mapping[str, Tensor], vocab_size: int, pieces: Mapping[int, Sequence[int]]
) -> dict[str, Tensor]:
    """A model's tensors, by parameter name, for a vocabulary of `vocab_size`.

    Args:
        tensors: none of them is changed.
        vocab_size: at least what it is.
        pieces: for each new id, the old ids that spelled its token.
    """
    grown = dict(tensors)
    for name in _TABLES:
        if name in tensors:
            grown[name] = _grow(tensors[name].detach(), vocab_size, pieces)
    return grown


def _grow(rows: Tensor, vocab_size: int, pieces: Mapping[int, Sequence[int]]) -> Tensor:
    missing = vocab_size - len(rows)
    grown = torch.cat([rows, rows.mean(0, keepdim=True).expand(missing, *rows.shape[1:])])
    for token_id, old_ids in pieces.items():
        grown[token_id] = rows[list(old_ids)].mean(0)
    return grown
