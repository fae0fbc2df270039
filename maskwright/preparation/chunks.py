"""Documents gathered into chunks, the unit of work: one chunk of text becomes one shard.

How the documents fall into chunks depends only on the documents, so shards are the same whatever
the number of workers.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from maskwright.corpus.stream import Split

_FIRST_BYTES = 2_000_000


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
        """Return the sha256 (hex) of the documents and of all that shapes the result."""
        digest = hashlib.sha256("\n".join(context).encode())
        for document in self.documents:
            digest.update(b"%d:" % len(document))
            digest.update(document)
        return digest.hexdigest()


def gather_chunks(documents: Iterable[tuple[Split, str]], max_bytes: int) -> Iterator[Chunk]:
    """Yield chunks of each split, closed once they hold `max_bytes`; the first ones hold less."""
    gathered: dict[Split, _Gathered] = {"train": _Gathered("train"), "valid": _Gathered("valid")}
    for split, text in documents:
        gathered[split].add(text.encode())
        if gathered[split].is_full(max_bytes):
            yield gathered[split].close()
    for rest in gathered.values():
        if rest.documents:
            yield rest.close()


@dataclass
class _Gathered:
    """The documents of a split that are in no chunk yet, and how many chunks and bytes there are.

    Chunks grow with the text before them: a small corpus keeps all cores busy and takes little
    memory, a large one does not fall into too many files.
    """

    split: Split
    index: int = 0
    documents: list[bytes] = field(default_factory=list[bytes])
    num_bytes: int = 0
    num_bytes_before: int = 0

    def add(self, document: bytes) -> None:
        self.documents.append(document)
        self.num_bytes += len(document)

    def is_full(self, max_bytes: int) -> bool:
        return self.num_bytes >= min(max_bytes, max(_FIRST_BYTES, self.num_bytes_before // 16))

    def close(self) -> Chunk:
        chunk = Chunk(self.split, self.index, self.documents)
        self.num_bytes_before += self.num_bytes
        self.index, self.documents, self.num_bytes = self.index + 1, [], 0
        return chunk
