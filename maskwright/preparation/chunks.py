"""Documents gathered into chunks, the unit of work: one chunk of text becomes one shard.

How the documents fall into chunks depends only on the documents, so shards are the same whatever
the number of workers.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from maskwright.corpus.stream import Split


@dataclass(frozen=True)
class Chunk:
    """The documents (UTF-8) of shard number `index` of `split`."""

    split: Split
    index: int
    documents: list[bytes]

    @property
    def name(self) -> str:
        return f"{self.index:05d}"

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.documents))

    def hash(self, *context: str) -> str:
        """sha256 (hex) of the documents and of what else decides what becomes of them."""
        digest = hashlib.sha256("\n".join(context).encode())
        for document in self.documents:
            digest.update(b"%d:" % len(document))
            digest.update(document)
        return digest.hexdigest()


def gather_chunks(documents: Iterable[tuple[Split, str]], max_bytes: int) -> Iterator[Chunk]:
    """Chunks of each split that are closed once they hold `max_bytes`."""
    pending: dict[Split, list[bytes]] = {"train": [], "valid": []}
    num_bytes: dict[Split, int] = {"train": 0, "valid": 0}
    indices: dict[Split, int] = {"train": 0, "valid": 0}

    def close(split: Split) -> Chunk:
        chunk = Chunk(split, indices[split], pending[split])
        pending[split], num_bytes[split] = [], 0
        indices[split] += 1
        return chunk

    for split, text in documents:
        encoded = text.encode()
        pending[split].append(encoded)
        num_bytes[split] += len(encoded)
        if num_bytes[split] >= max_bytes:
            yield close(split)
    for split, rest in pending.items():
        if rest:
            yield close(split)
