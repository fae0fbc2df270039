"""The words that a tokenizer is trained on: a bounded sample of the text, and its word counts.

The sample depends on the seed alone. Each different part of the text is normalized and
pre-tokenized once. Rare words are left out, which bounds memory.
"""

import heapq
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import tokenizers

from maskwright.tokenizer.cached_encoder import MAX_CHUNK_CHARACTERS, Cutting

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
    texts: Iterable[str], backend: tokenizers.Tokenizer, cutting: Cutting
) -> Counter[str]:
    """Count the pre-tokens of `texts`, as the trainer expects them."""
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
            for start in range(0, len(word), MAX_WORD_CHARACTERS):
                words[word[start : start + MAX_WORD_CHARACTERS]] += count
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
