"""What a tokenizer learns from: a bounded sample of the text, its word counts, and their merges.

The sample depends on the seed alone. Each different part of the text is normalized and
pre-tokenized once. Rare words are left out, which bounds memory.

Byte-pair encoding is trained on these counts (Sennrich et al. 2016, arXiv:1508.07909), and so is
WordPiece, with a prefix for symbols inside a word. The trainer of the `tokenizers` library numbers
those symbols in the order of a randomly seeded hash table, so its vocabulary differs between runs.
Here the same words give the same vocabulary, and training on counts instead of text takes a third
of the time. Ties go to the pair with smaller ids.

A combining mark stays with its letter: the first merges join each frequent character with its
marks, and all others join whole clusters. By frequency alone, a mark often joins the letter after
it, because most vowel signs and viramas follow many letters.
"""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import tokenizers

from maskwright.tokenizer.encoding import MAX_CHUNK_CHARACTERS, Cutting

_PIECE_CHARACTERS = 16_384


def sample_texts(texts: Iterable[str], max_bytes: int, seed: int) -> list[str]:
    """Return a sample of the texts, at most `max_bytes` (UTF-8), in their order.

    Every piece of text (up to 16,384 characters, cut at a blank) gets a random key, and the pieces
    with the smallest keys are kept, so every piece is equally likely.
    """
    generator = random.Random(seed)
    kept: list[tuple[float, int, bytes]] = []  # a heap whose first item has the largest key
    num_bytes = 0
    for index, piece in enumerate(piece for text in texts for piece in cut_pieces(text)):
        encoded = piece.encode("utf-8", "replace")
        heapq.heappush(kept, (-generator.random(), index, encoded))
        num_bytes += len(encoded)
        while num_bytes > max_bytes:
            num_bytes -= len(heapq.heappop(kept)[2])
    kept.sort(key=lambda entry: -entry[1])
    sample: list[str] = []
    while kept:  # pop, so that no text is in memory twice
        sample.append(kept.pop()[2].decode())
    return sample


def cut_pieces(text: str) -> Iterator[str]:
    """Cut a text into the pieces that are sampled."""
    start = 0
    while start < len(text):
        stop = start + _PIECE_CHARACTERS
        if stop < len(text):
            stop = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop), start)
            stop = stop if stop > start else start + _PIECE_CHARACTERS
        yield text[start:stop]
        start = stop


def draw_pieces(text: str, fingerprint: int, seed: int) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a text, each with a random 64-bit key that depends only on the text, the
    number of the piece, and `seed`.
    """
    for number, piece in enumerate(cut_pieces(text)):
        drawn = blake2b(b"%d %d %d" % (fingerprint, number, seed), digest_size=8).digest()
        yield int.from_bytes(drawn, "little"), piece


# A longer word is counted as pieces of this length, because each merge scans whole words, so text
# without blanks would take hours.
MAX_WORD_CHARACTERS = 256


def count_words(
    texts: Iterable[str],
    backend: tokenizers.Tokenizer,
    cutting: Cutting,
    longest: int = MAX_WORD_CHARACTERS,
) -> Counter[str]:
    """Count the pre-tokens of `texts`, as the trainer expects them, in pieces of `longest`."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(cutting.split(text))
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    assert pre_tokenizer is not None
    parts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for part in cutting.divide(chunk):
            parts[part] += count
    words: Counter[str] = Counter()
    for part, count in parts.items():
        part = part[:MAX_CHUNK_CHARACTERS]
        normal = normalizer.normalize_str(part) if normalizer is not None else part
        for word, _ in pre_tokenizer.pre_tokenize_str(normal):
            for start in range(0, len(word), longest):
                words[word[start : start + longest]] += count
    return words


def keep_frequent(words: Counter[str], max_characters: int, seed: int) -> dict[str, int]:
    """Return the most frequent words, up to `max_characters` in all; `seed` orders ties."""
    generator = random.Random(seed)
    kept: dict[str, int] = {}
    order = sorted(words.items(), key=lambda item: (-item[1], generator.random()))
    for word, count in order:
        max_characters -= len(word)
        if max_characters < 0:
            break
        kept[word] = count
    return kept


def choose_alphabet(
    words: dict[str, int], coverage: float, max_tokens: int, inner_tokens: int = 0
) -> list[str]:
    """Return the most frequent characters, sorted: `coverage` of all in `words`, if `max_tokens`
    suffice; a character takes one, and `inner_tokens` more if a word has it after its first.
    """
    inner = {character for word in words for character in word[1:]}
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    wanted = coverage * sum(counts.values())
    alphabet: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        max_tokens -= 1 + inner_tokens * (character in inner)
        if wanted <= 0 or max_tokens < 0:
            break
        wanted -= count
        alphabet.append(character)
    return sorted(alphabet)


def drop_words_beyond(words: dict[str, int], alphabet: Iterable[str]) -> dict[str, int]:
    """Return the words whose characters are all in `alphabet`."""
    known = frozenset(alphabet)
    return {word: count for word, count in words.items() if known.issuperset(word)}


# The clusters of a word: of each, its characters, spelled in the alphabet.
Clusters = list[list[str]]
Cluster = tuple[tuple[str, ...], ...]  # the symbols of each character

_SHIFT = 21  # a pair of ids is one integer, left << 21 | right; vocabularies are below 2^21
_RIGHT = (1 << _SHIFT) - 1


@dataclass(frozen=True)
class Merges:
    """A learned vocabulary in the order of its ids, and the merged pairs with their counts.

    `num_tokens` is the number of tokens of the words before `learn_joins`.
    """

    tokens: list[str]
    pairs: list[tuple[str, str]]
    counts: list[int]
    num_tokens: int = 0

    def keep(self, places: Iterable[int]) -> "Merges":
        """Return the tokens at these places, without their merges."""
        kept = list(places)
        tokens, counts = [self.tokens[n] for n in kept], [self.counts[n] for n in kept]
        return Merges(tokens, [], counts, self.num_tokens)


def learn_merges(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    size: int,
    min_frequency: int,
    prefix: str = "",
    find_clusters: Callable[[str], Clusters] = lambda word: [],
) -> Merges:
    """Merge the most frequent pair of symbols until there are `size` tokens or no pair is left.

    The merges of clusters come first and take up to half of the new tokens; a cluster that they do
    not reach is not joined with what is beside it.

    Args:
        words: counts of words spelled in `alphabet`.
        alphabet: the first tokens.
        size: number of tokens to learn, the alphabet included.
        min_frequency: a rarer pair is not merged.
        prefix: put before symbols that do not begin a word (``##`` for WordPiece).
        find_clusters: returns the clusters of a word; none for a word without combining marks.
    """
    inner = sorted({prefix + character for word in words for character in word[1:]})
    tokens = [*alphabet, *(token for token in inner if prefix)]
    clusters = {word: _spell_clusters(find_clusters(word), prefix) for word in words}
    counts: Counter[Cluster] = Counter()
    for word, found in clusters.items():
        for cluster in found:
            counts[cluster] += words[word] * (len(cluster) > 1)
    frequent = {one: count for one, count in counts.items() if count >= max(min_frequency, 1)}
    limit = len(tokens) + max(0, size - len(tokens)) // 2
    pairs, whole = _join_clusters(frequent, tokens, limit, min_frequency, prefix)
    learner = _Learner(tokens, prefix)
    for word, count in words.items():
        symbols = [word[0], *(prefix + character for character in word[1:])]
        for part in _cut_at_rare(clusters[word], whole) if clusters[word] else [symbols]:
            learner.add_word(part, count)
    learner.repeat(pairs)
    return learner.run(size, min_frequency)


def _spell_clusters(clusters: Clusters, prefix: str) -> list[Cluster]:
    """Return the clusters of a word as the symbols of each of their characters."""
    spelled: list[Cluster] = []
    before = ""  # the first symbol of a word has no prefix
    for cluster in clusters:
        characters: list[tuple[str, ...]] = []
        for character in cluster:
            characters.append((before + character[0], *(prefix + one for one in character[1:])))
            before = prefix
        spelled.append(tuple(characters))
    return spelled


def _join_clusters(
    counts: Mapping[Cluster, int],
    tokens: Sequence[str],
    limit: int,
    min_frequency: int,
    prefix: str,
) -> tuple[list[tuple[str, str]], set[Cluster]]:
    """Return the merges that join clusters, and the clusters that they make one token of.

    Characters are joined first, so that no merge crosses the end of a character or of a cluster,
    and the same merges apply wherever the cluster occurs.
    """
    by_character = _Learner(list(tokens), prefix)
    characters: Counter[tuple[str, ...]] = Counter()
    for cluster, count in counts.items():
        for character in cluster:
            characters[character] += count
    for character, count in characters.items():
        by_character.add_word(character, count)
    pairs = by_character.run(limit, 1).pairs
    by_cluster = _Learner(list(tokens), prefix)
    for cluster, count in counts.items():
        by_cluster.add_word([symbol for character in cluster for symbol in character], count)
    by_cluster.repeat(pairs)
    pairs = by_cluster.run(limit, min_frequency).pairs
    found = zip(counts, by_cluster.words, strict=True)
    return pairs, {cluster for cluster, symbols in found if len(symbols) == 1}


def _cut_at_rare(clusters: Iterable[Cluster], whole: Container[Cluster]) -> Iterator[list[str]]:
    """Yield the symbols of a word, with each cluster of several tokens by itself."""
    part: list[str] = []
    for cluster in clusters:
        symbols = [symbol for character in cluster for symbol in character]
        if len(cluster) == 1 or cluster in whole:
            part += symbols
            continue
        yield from [part, symbols] if part else [symbols]
        part = []
    if part:
        yield part


def learn_joins(
    words: Mapping[tuple[str, ...], int],
    known: Sequence[str],
    num_new: int,
    min_frequency: int,
    prefix: str = "",
) -> Merges:
    """Continue merging where another vocabulary stopped; the result has only the new tokens.

    Words are given as tokens of the vocabulary, `known`. A pair whose joined token is already known
    is not merged, so the result may have fewer than `num_new` tokens.
    """
    learner = _Learner(list(known), prefix, makes_new=True)
    for symbols, count in words.items():
        learner.add_word(symbols, count)
    merges = learner.run(len(known) + num_new, min_frequency)
    num_tokens = sum(len(symbols) * count for symbols, count in words.items())
    return Merges(merges.tokens[len(known) :], merges.pairs, merges.counts, num_tokens)


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

    def repeat(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Apply merges that were learned before, in their order."""
        for left, right in pairs:
            pair = self.ids[left] << _SHIFT | self.ids[right]
            self.merged.append((pair >> _SHIFT, pair & _RIGHT, self.pair_counts[pair]))
            self._merge(pair)

    def _join(self, pair: int) -> str:
        right = self.tokens[pair & _RIGHT]
        return self.tokens[pair >> _SHIFT] + right.removeprefix(self.prefix)

    def _merge(self, pair: int) -> set[int]:
        """Replace `pair` by one symbol in all words; return pairs that are new or occur more."""
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
