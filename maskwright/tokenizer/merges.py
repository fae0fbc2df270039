"""Byte-pair encoding, trained on word counts (Sennrich et al. 2016, arXiv:1508.07909).

WordPiece is trained in the same way, as in the `tokenizers` library, but with a prefix for symbols
inside a word. The library's trainer numbers those symbols in the order of a randomly seeded hash
table, so its vocabulary differs between runs. Here the same words give the same vocabulary, and
training on counts instead of text takes a third of the time. Ties go to the pair with smaller ids.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SHIFT = 21  # a pair of ids is one integer, left << 21 | right; vocabularies are below 2^21
_RIGHT = (1 << _SHIFT) - 1


@dataclass(frozen=True)
class Merges:
    """A learned vocabulary in the order of its ids, and the merged pairs with their counts."""

    tokens: list[str]
    pairs: list[tuple[str, str]]
    counts: list[int]


def learn_merges(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
    prefix: str = "",
) -> Merges:
    """Merge the most frequent pair of symbols until there are `size` tokens or no pair is left.

    Args:
        words: counts of words spelled in `alphabet`.
        alphabet: the first tokens.
        size: number of tokens to learn, the alphabet included.
        min_frequency: a rarer pair is not merged.
        prefix: put before symbols that do not begin a word (``##`` for WordPiece).
    """
    inner = sorted({prefix + character for word in words for character in word[1:]})
    tokens = [*alphabet, *(token for token in inner if prefix)]
    learner = _Learner(tokens, prefix)
    for word, count in words.items():
        learner.add_word([word[0], *(prefix + character for character in word[1:])], count)
    return learner.run(size, min_frequency)


def learn_joins(
    words: Mapping[tuple[str, ...], int],
    known: Sequence[str],
    num_new: int,
    min_frequency: int,
    prefix: str = "",
) -> Merges:
    """Continue merging where another vocabulary stopped; the result has only the new tokens.

    A pair whose joined token is already known is not merged.

    Args:
        words: counts of words, each as the tokens of the vocabulary.
        known: all tokens of the vocabulary.
        num_new: number of tokens to learn; the result may have fewer.
        min_frequency, prefix: as in `learn_merges`.
    """
    learner = _Learner(list(known), prefix, makes_new=True)
    for symbols, count in words.items():
        learner.add_word(symbols, count)
    merges = learner.run(len(known) + num_new, min_frequency)
    return Merges(merges.tokens[len(known) :], merges.pairs, merges.counts)


class _Learner:
    """Words as lists of ids, the count of each pair, and the words that contain each pair."""

    def __init__(self, tokens: list[str], prefix: str, makes_new: bool = False) -> None:
        self.makes_new = makes_new
        self.merged: list[tuple[int, int, int]] = []  # left, right, count
        self.tokens = tokens
        self.ids = {token: token_id for token_id, token in enumerate(tokens)}
        self.prefix = prefix
        self.words: list[list[int]] = []
        self.word_counts: list[int] = []
        self.pair_counts: defaultdict[int, int] = defaultdict(int)
        self.places: defaultdict[int, list[int]] = defaultdict(list)

    def add_word(self, word: Sequence[str], count: int) -> None:
        """Add a word, given as the tokens that it begins as."""
        index, symbols = len(self.words), [self.ids[token] for token in word]
        self.words.append(symbols)
        self.word_counts.append(count)
        for left, right in pairwise(symbols):
            self._count(left << _SHIFT | right, index, count)

    def _count(self, pair: int, index: int, count: int) -> None:
        self.pair_counts[pair] += count
        self.places[pair].append(index)

    def run(self, size: int, min_frequency: int) -> Merges:
        """Merge until there are `size` tokens; return the vocabulary and the merges."""
        counts = self.pair_counts
        queue = [(-count, pair) for pair, count in counts.items()]
        heapq.heapify(queue)
        while queue and len(self.tokens) < size:
            negative, pair = heapq.heappop(queue)
            if counts[pair] != -negative:  # it has changed since it was queued
                if counts[pair] > 0:
                    heapq.heappush(queue, (-counts[pair], pair))
                continue
            if -negative < min_frequency:
                break
            if self.makes_new and self._join(pair) in self.ids:
                continue
            self.merged.append((pair >> _SHIFT, pair & _RIGHT, -negative))
            for changed in self._merge(pair):
                heapq.heappush(queue, (-counts[changed], changed))
        pairs = [(self.tokens[left], self.tokens[right]) for left, right, _ in self.merged]
        return Merges(self.tokens, pairs, [count for _, _, count in self.merged])

    def _join(self, pair: int) -> str:
        right = self.tokens[pair & _RIGHT]
        return self.tokens[pair >> _SHIFT] + right.removeprefix(self.prefix)

    def _merge(self, pair: int) -> set[int]:
        """Replace `pair` by one symbol in all words; return the pairs that became new or more
        frequent.
        """
        left, right = pair >> _SHIFT, pair & _RIGHT
        token = self._join(pair)
        new = self.ids.setdefault(token, len(self.tokens))
        if new == len(self.tokens):
            self.tokens.append(token)
        changed: set[int] = set()
        for index in dict.fromkeys(self.places.pop(pair)):
            symbols, count = self.words[index], self.word_counts[index]
            i = 0
            while i < len(symbols) - 1:
                if symbols[i] == left and symbols[i + 1] == right:
                    self._replace(symbols, i, new, index, count, changed)
                i += 1
        del self.pair_counts[pair]
        return changed - {pair}

    def _replace(
        self, symbols: list[int], i: int, new: int, index: int, count: int, changed: set[int]
    ) -> None:
        left, right = symbols[i], symbols[i + 1]
        if i > 0:
            before = symbols[i - 1]
            self.pair_counts[before << _SHIFT | left] -= count
            self._count(before << _SHIFT | new, index, count)
            changed.add(before << _SHIFT | new)
        if i + 2 < len(symbols):
            after = symbols[i + 2]
            self.pair_counts[right << _SHIFT | after] -= count
            self._count(new << _SHIFT | after, index, count)
            changed.add(new << _SHIFT | after)
        symbols[i : i + 2] = [new]
