"""A bounded sample of a stream of texts, the same for the same seed, in bounded memory."""

import heapq
import random
from collections.abc import Iterable, Iterator

_PIECE_CHARACTERS = 16_384


def sample_texts(texts: Iterable[str], max_bytes: int, seed: int) -> list[str]:
    """At most `max_bytes` (UTF-8) of the texts, in their order; all of them if they are fewer.

    Every piece of text (up to 16,384 characters, cut at a blank) gets a random key, and those
    with the smallest keys stay: each piece is as likely as any other, wherever it stands.
    """
    generator = random.Random(seed)
    kept: list[tuple[float, int, bytes]] = []  # a heap whose first has the largest key
    num_bytes = 0
    for index, piece in enumerate(_cut_pieces(texts)):
        encoded = piece.encode("utf-8", "replace")
        heapq.heappush(kept, (-generator.random(), index, encoded))
        num_bytes += len(encoded)
        while num_bytes > max_bytes:
            num_bytes -= len(heapq.heappop(kept)[2])
    kept.sort(key=lambda entry: entry[1])
    return [encoded.decode("utf-8") for _, _, encoded in kept]


def _cut_pieces(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        start = 0
        while start < len(text):
            stop = start + _PIECE_CHARACTERS
            if stop < len(text):
                stop = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop), start)
                stop = stop if stop > start else start + _PIECE_CHARACTERS
            yield text[start:stop]
            start = stop
