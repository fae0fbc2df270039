"""Initial embeddings for a vocabulary that extends or replaces the one of a model.

An extended vocabulary: the row of a new token is the mean of the rows of the tokens that previously
encoded it. Rows that only pad the vocabulary to a round size are the mean of all rows: Hewitt,
"Initializing New Word Embeddings for Pretrained Language Models", 2021, shows that such a row takes
at most 1/V of the probability of the other tokens, while a random row may take nearly all of it.

Another vocabulary: a token that the old vocabulary has as well keeps its row. Any other token gets
a weighted mean of the rows of such shared tokens, by how similarly they are used in the new text:
FOCUS (Dobler and de Melo, arXiv 2305.14481) with co-occurrence counts of our own instead of
fastText. A token too rare to have counts gets the mean of the old tokens that spell it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.loader import Corpus
from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer

MAX_TOKENS = 4_000_000  # of text, to count in
_WINDOW = 4  # neighbors on each side
_MAX_CONTEXTS, _MAX_COUNTS = 2048, 1 << 25  # the most frequent tokens; counts in memory
_SHARPNESS = 10.0  # of a cosine, before sparsemax: some ten tokens share the weight
_CHUNK = 512  # tokens compared at once

_tensordot: Any = vars(torch)["tensordot"]  # torch types it in part

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Sources = dict[int, tuple[list[int], list[float]]]  # new id: old ids, and their weights


@dataclass(frozen=True)
class Transfer:
    """Where the rows of a new vocabulary come from.

    Attributes:
        sources: the old ids of each new id and their weights, which add up to 1.
        num_shared, num_similar, num_spelled: tokens of each origin.
    """

    sources: Sources
    num_shared: int
    num_similar: int
    num_spelled: int

    def describe(self) -> str:
        return (
            f"embeddings: {self.num_shared:,} tokens keep theirs, {self.num_similar:,} begin as "
            f"those of tokens used alike, {self.num_spelled:,} as the mean of their old pieces"
        )


def transfer_vocabulary(old: Tokenizer, new: Tokenizer, text: Ids) -> Transfer:
    """Return where each token of `new` gets its row from.

    Args:
        text: token ids of `new`, in the order of the text.
    """
    shared = match_tokens(old, new)
    sources: Sources = {token: ([old_id], [1.0]) for token, old_id in shared.items()}
    usage = count_usage(text, new.vocab_size)
    is_used: NDArray[np.bool_] = np.any(usage, axis=1)
    anchors = np.array([token for token in sorted(shared) if is_used[token]], np.int64)
    others = [token for token in new.ordinary_ids.tolist() if token not in shared]
    similar = [token for token in others if is_used[token]] if len(anchors) else []
    for begin in range(0, len(similar), _CHUNK):
        chunk = similar[begin : begin + _CHUNK]
        weights = sparsemax((_SHARPNESS * usage[chunk] @ usage[anchors].T).astype(np.float32))
        for token, row in zip(chunk, weights, strict=True):
            chosen = np.flatnonzero(row)
            old_ids = [shared[anchor] for anchor in anchors[chosen].tolist()]
            sources[token] = old_ids, row[chosen].tolist()
    spelled, pieces = [token for token in others if token not in sources], TokenText(new)
    for token in spelled:
        text_of_token = pieces.spell(new.token(token)).strip()
        ids = old.encode(text_of_token).ids.tolist() or [old.unk_id]
        sources[token] = ids, [1 / len(ids)] * len(ids)
    return Transfer(sources, len(shared), len(similar), len(spelled))


def read_first_tokens(corpus: Corpus, most: int = MAX_TOKENS) -> Ids:
    """Return the first `most` tokens of a corpus, or all if it has fewer.

    They are read by document, as the files of the corpus end with documents.
    """
    ends = np.cumsum(corpus.document_lengths)
    starts = ends - corpus.document_lengths
    parts = [
        corpus.tokens(start, min(end, most))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if start < most
    ]
    return np.concatenate(parts).astype(np.int64)


def match_tokens(old: Tokenizer, new: Tokenizer) -> dict[int, int]:
    """Return the old id of each new token that the old vocabulary has, special tokens by role.

    Tokens are equal if they stand for the same text, at the beginning of a word or not; failing
    that, if they stand for the same text elsewhere in a word, or in lowercase.
    """
    known = {form: token for token, form in reversed(_spell_all(old).items())}
    found = dict(zip(new.role_ids, old.role_ids, strict=True))
    if old.kind == new.kind:  # equal strings are equal tokens, parts of a character as well
        ids = new.ordinary_ids.tolist()
        same = zip(ids, map(old.token_id, new.tokens(ids)), strict=True)
        found |= {token: old_id for token, old_id in same if old_id is not None}
    for token, (begins, text) in _spell_all(new).items():
        small = text.lower()
        forms = [(begins, text), (not begins, text), (begins, small), (not begins, small)]
        match = next((known[form] for form in forms if form in known), None)
        if token not in found and match is not None:
            found[token] = match
    return found


def _spell_all(tokenizer: Tokenizer) -> dict[int, tuple[bool, str]]:
    """Return for each ordinary token whether it begins a word, and its text."""
    pieces, ids = TokenText(tokenizer), tokenizer.ordinary_ids.tolist()
    spelled: dict[int, tuple[bool, str]] = {}
    for token_id, token in zip(ids, tokenizer.tokens(ids), strict=True):
        text = pieces.spell(token)
        if text.strip():
            spelled[token_id] = pieces.begins_word(token), text.strip()
    return spelled


def count_usage(text: Ids, vocab_size: int) -> Floats:
    """Return how each token is used: [V, contexts], rows of length 1, or 0 for what never occurs.

    Positive pointwise mutual information with the most frequent tokens among its neighbors.
    """
    frequency = np.bincount(text, minlength=vocab_size)
    num_contexts = min(_MAX_CONTEXTS, vocab_size, _MAX_COUNTS // vocab_size)
    contexts = np.argsort(-frequency, kind="stable")[:num_contexts]
    number = np.full(vocab_size, -1, np.int64)
    number[contexts] = np.arange(num_contexts)
    counts = np.zeros(vocab_size * num_contexts, np.float32)
    for distance in range(1, _WINDOW + 1):
        before, after = text[:-distance], text[distance:]
        for tokens, neighbors in ((before, after), (after, before)):
            column = number[neighbors]
            pairs = (tokens * num_contexts + column)[column >= 0]
            counts += np.bincount(pairs, minlength=len(counts))
    table = counts.reshape(vocab_size, num_contexts)
    expected = np.outer(table.sum(1), table.sum(0) / max(table.sum(), 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.log(table / expected), neginf=0.0)
    np.maximum(information, 0.0, out=information)
    length = np.linalg.norm(information, axis=1, keepdims=True)
    return (information / np.maximum(length, 1e-12)).astype(np.float32)


def sparsemax(scores: Floats) -> Floats:
    """Return the nearest probabilities to each row: most are 0.

    Martins and Astudillo, "From Softmax to Sparsemax", 2016.
    """
    ordered = -np.sort(-scores, axis=1)
    total: Floats = np.cumsum(ordered, axis=1) - 1
    count = np.arange(1, scores.shape[1] + 1, dtype=np.float32)
    is_used = np.asarray(ordered * count > total)
    last: Ids = np.count_nonzero(is_used, axis=1, keepdims=True) - 1
    threshold = np.take_along_axis(total, last, 1) / (last + 1).astype(np.float32)
    return np.maximum(scores - threshold, 0.0)


# [V, D] or [V] tensors; the weight of a tied decoder is not listed separately.
_TABLES = ("encoder.embeddings.word.weight", "head.decoder.weight", "head.decoder.bias")


def grow_vocabulary(
    tensors: Mapping[str, Tensor], vocab_size: int, pieces: Mapping[int, Sequence[int]]
) -> dict[str, Tensor]:
    """Return the tensors of a model by parameter name, for a vocabulary of `vocab_size`.

    Args:
        tensors: the old tensors, which are not modified.
        vocab_size: the new size, at least the old one.
        pieces: for each new id, the old ids that encoded its token.
    """
    grown = dict(tensors)
    for name in _TABLES:
        if name in tensors:
            rows = tensors[name].detach()
            mean = rows.mean(0, keepdim=True)
            grown[name] = torch.cat([rows, mean.expand(vocab_size - len(rows), *rows.shape[1:])])
            for token_id, old_ids in pieces.items():
                grown[name][token_id] = rows[list(old_ids)].mean(0)
    return grown


def mix_vocabulary(
    tensors: Mapping[str, Tensor],
    vocab_size: int,
    sources: Mapping[int, tuple[Sequence[int], Sequence[float]]],
) -> dict[str, Tensor]:
    """Return the tensors of a model by parameter name, for another vocabulary of `vocab_size`.

    Args:
        tensors: the old tensors, which are not modified.
        sources: for each new id, old ids and the weights of their rows in a sum; all other rows
            become the mean of the old rows.
    """
    mixed = dict(tensors)
    for name in _TABLES:
        if name in tensors:
            rows = tensors[name].detach()
            mixed[name] = rows.mean(0).repeat(vocab_size, *[1] * (rows.dim() - 1))
            for token_id, (old_ids, weights) in sources.items():
                mixed[name][token_id] = _tensordot(torch.tensor(weights), rows[old_ids], 1)
    return mixed
