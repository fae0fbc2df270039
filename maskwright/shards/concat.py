"""Concatenation of prepared folders with the same tokenizer."""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.shards.manifest import SPLITS, FileInfo, Manifest, SplitInfo, read_manifest
from maskwright.shards.reader import TokenStore


class ConcatStore(TokenStore):
    """One split of several prepared folders, concatenated.

    Args:
        stores: the stores by name; the caller ensures that they have the same tokenizer.
        passes: the passes of training over each store; empty: one each.

    Attributes:
        folder: the folder of the first store.
        num_documents_each: the number of documents of each store, in order.
    """

    def __init__(self, stores: Mapping[str, TokenStore], passes: Sequence[float] = ()) -> None:
        self.stores, self.passes = dict(stores), tuple(passes) or (1.0,) * len(stores)
        first = next(iter(stores.values()))
        folders = [folder for store in stores.values() for folder in store.folders]
        manifest = concat_manifests({name: store.manifest for name, store in stores.items()})
        super().__init__(folders, first.split, manifest)
        self.num_documents_each = tuple(store.num_documents for store in stores.values())
        self._ends = [*accumulate(store.num_tokens for store in stores.values())]

    def __reduce__(self) -> tuple[Any, ...]:
        return ConcatStore, (self.stores, self.passes)

    @property
    def name(self) -> str:
        return " + ".join(store.name for store in self.stores.values())

    @cached_property
    def unigram_counts(self) -> NDArray[np.int64]:
        """The count of each id in an epoch over all stores, int64 [vocab_size]."""
        counts = zip(self.stores.values(), self.passes, strict=True)
        return np.rint(sum(store.unigram_counts * times for store, times in counts)).astype(
            np.int64
        )

    def source_of(self, position: int) -> str:
        """Return the name of the store that contains the token at `position`."""
        return [*self.stores][bisect_right(self._ends, position)]


def concat_manifests(manifests: Mapping[str, Manifest]) -> Manifest:
    """Return a manifest (not a file) for the concatenation of these folders.

    Args:
        manifests: the manifests by name, with the same tokenizer; the names are in ``source``.
    """
    parts = [*manifests.values()]
    paths = [str(path) for part in parts for path in part.source.get("paths", [])]
    described = {
        name: {"fingerprint": part.fingerprint, **part.source} for name, part in manifests.items()
    }
    return Manifest(
        vocab_size=parts[0].vocab_size,
        dtype=parts[0].dtype,
        tokenizer_fingerprint=parts[0].tokenizer_fingerprint,
        fingerprint=_hash([part.fingerprint for part in parts]),
        source={"paths": paths, "sources": described},
        splits={split: _join_splits([part.splits[split] for part in parts]) for split in SPLITS},
        unigram_counts=FileInfo(
            parts[0].unigram_counts.num_bytes, _hash([part.unigram_counts.sha256 for part in parts])
        ),
        dropped=dict(sum((Counter(part.dropped) for part in parts), Counter[str]())),
    )


def fingerprint_folders(folders: Mapping[str, Path]) -> str:
    """Return the fingerprint of the input of one folder, or of several concatenated ones.

    Raises:
        ShardError: a folder is missing or damaged.
    """
    found = [read_manifest(folder).fingerprint for folder in folders.values()]
    return found[0] if len(found) == 1 else _hash(found)


def _join_splits(parts: Sequence[SplitInfo]) -> SplitInfo:
    return SplitInfo(
        num_tokens=sum(part.num_tokens for part in parts),
        num_documents=sum(part.num_documents for part in parts),
        num_characters=sum(part.num_characters for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        num_words=sum(part.num_words for part in parts),
        shards=tuple(shard for part in parts for shard in part.shards),
    )


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
