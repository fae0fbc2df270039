"""A small prepared folder made by hand."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from maskwright.shards.manifest import (
    COUNTS_NAME,
    Manifest,
    ShardInfo,
    SplitInfo,
    choose_dtype,
    write_manifest,
)
from maskwright.shards.writer import ShardWriter, write_array

VOCAB_SIZE = 400
# Documents by shard: ids, and whether a word begins there.
SHARDS = {
    "train": [
        [([7, 300, 9], [1, 0, 1]), ([8], [1])],
        [([5] * 9, [1, 0, 0, 0, 0, 0, 0, 1, 1]), ([6, 399], [1, 0])],
    ],
    "valid": [[([11, 12], [1, 1])]],
}


def write_shard(
    folder: Path, name: str, documents: Iterable[tuple[ArrayLike, ArrayLike]], dtype: str = "uint16"
) -> ShardInfo:
    writer = ShardWriter(folder, name, dtype)
    for ids, starts in documents:
        writer.add(np.array(ids, np.uint32), np.array(starts, np.bool_))
    return writer.close()


def write_prepared(folder: Path, vocab_size: int = VOCAB_SIZE) -> Manifest:
    """Writes `SHARDS`, counts and manifest (no tokenizer) to `folder`."""
    dtype = choose_dtype(vocab_size)
    splits: dict[str, SplitInfo] = {}
    for split, shards in SHARDS.items():
        infos = [
            write_shard(folder / split, f"{index:05d}", documents, dtype)
            for index, documents in enumerate(shards)
        ]
        num_tokens = sum(info.num_tokens for info in infos)
        num_documents = sum(info.num_documents for info in infos)
        splits[split] = SplitInfo(num_tokens, num_documents, 0, 0, 0, tuple(infos))
    ids = [token for shard in SHARDS["train"] for document, _ in shard for token in document]
    counts = np.bincount(ids, minlength=vocab_size).astype("<u8")
    counts_info = write_array(folder / COUNTS_NAME, counts)
    manifest = Manifest(
        vocab_size=vocab_size,
        dtype=dtype,
        tokenizer_fingerprint="t" * 64,
        fingerprint="f" * 64,
        source={"paths": ["a.txt"]},
        splits=splits,
        unigram_counts=counts_info,
        dropped={"empty": 3},
    )
    write_manifest(folder, manifest)
    return manifest
