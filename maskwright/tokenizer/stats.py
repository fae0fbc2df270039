"""Measures of how well a tokenizer fits a text, for ``tokenizer inspect`` and ``compare``."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer

_NUM_LISTED = 20


@dataclass(frozen=True)
class TokenizerStats:
    """Measures of a tokenizer on a text. Ratios are 0 for a text without words or tokens.

    Attributes:
        num_tokens, num_characters, num_bytes: sizes of the text (UTF-8).
        num_words: number of parts between whitespace; in scripts without spaces, whole sentences.
        fertility: tokens per such word (Rust et al. 2021, arXiv:2012.15613).
        tokens_per_character, bytes_per_token: measures that are comparable in every script.
        unknown_share: share of tokens that are [UNK].
        split_share: share of words, as whole-word masking splits them, with several tokens.
        used_share: share of the ordinary vocabulary that occurs in the text.
        most_frequent: the most frequent tokens with their counts.
        longest: the longest tokens of the vocabulary.
    """

    num_tokens: int
    num_characters: int
    num_bytes: int
    num_words: int
    fertility: float
    tokens_per_character: float
    bytes_per_token: float
    unknown_share: float
    split_share: float
    used_share: float
    most_frequent: list[tuple[str, int]]
    longest: list[str]


def measure_tokenizer(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenizerStats:
    """Measure a tokenizer on `texts`, which are read as a stream."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    sizes: Counter[str] = Counter()
    for text in texts:
        encoded = tokenizer.encode(text)
        counts += np.bincount(encoded.ids, minlength=tokenizer.vocab_size)
        starts = np.flatnonzero(encoded.word_starts)
        lengths = np.diff(np.append(starts, len(encoded.ids)))
        sizes["parts"] += len(lengths)
        sizes["split"] += int((lengths > 1).sum())
        sizes["characters"] += len(text)
        sizes["bytes"] += len(text.encode())
        sizes["words"] += len(text.split())
    num_tokens = int(counts.sum())
    ordinary = tokenizer.ordinary_ids
    show = TokenText(tokenizer).show
    order = np.argsort(-counts, kind="stable")[:_NUM_LISTED]
    return TokenizerStats(
        num_tokens=num_tokens,
        num_characters=sizes["characters"],
        num_bytes=sizes["bytes"],
        num_words=sizes["words"],
        fertility=_divide(num_tokens, sizes["words"]),
        tokens_per_character=_divide(num_tokens, sizes["characters"]),
        bytes_per_token=_divide(sizes["bytes"], num_tokens),
        unknown_share=_divide(int(counts[tokenizer.unk_id]), num_tokens),
        split_share=_divide(sizes["split"], sizes["parts"]),
        used_share=_divide(int((counts[ordinary] > 0).sum()), len(ordinary)),
        most_frequent=[(show(int(i)), int(counts[i])) for i in order if counts[i]],
        longest=find_longest_tokens(tokenizer),
    )


def find_longest_tokens(tokenizer: Tokenizer) -> list[str]:
    """Return the ordinary tokens of the most characters, as people read them."""
    pieces, names = TokenText(tokenizer), tokenizer.tokens(tokenizer.ordinary_ids.tolist())
    pairs = zip(names, tokenizer.ordinary_ids.tolist(), strict=True)
    longest = sorted(pairs, key=lambda pair: (-len(pieces.spell(pair[0])), pair[0]))
    return [pieces.show(token_id) for _, token_id in longest[:_NUM_LISTED]]


def _divide(count: int, total: int) -> float:
    return count / total if total else 0.0
