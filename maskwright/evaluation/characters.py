"""How much text a token stands for: the denominator of bits per character, in every suite."""

import numpy as np
from numpy.typing import NDArray

from maskwright.tokenizer.pieces import Pieces
from maskwright.tokenizer.tokenizer import Tokenizer

BLANK = -1  # in the place of a token's number of characters: it spells none


def count_characters(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """How many characters of text each token stands for: [V].

    `BLANK` for blanks alone, and for special tokens such as [UNK], which stand for unknown ones.
    """
    pieces = Pieces(tokenizer)
    counts = np.full(tokenizer.vocab_size, BLANK, np.int64)
    ordinary = tokenizer.ordinary_ids
    for token_id, token in zip(ordinary, tokenizer.tokens(ordinary.tolist()), strict=True):
        if not pieces.is_blank(token):
            counts[token_id] = pieces.count_characters(token)
    return counts
