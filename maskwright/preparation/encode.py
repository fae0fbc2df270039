"""One chunk of text to one shard, unless the shard exists already.

Beside a finished shard is ``NAME.done`` with the hash of its text and its description. It is
removed when the manifest, which describes all shards, is written.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.corpus.stream import Split
from maskwright.errors import ShardError
from maskwright.files import read_json, write_json
from maskwright.preparation.chunks import Chunk
from maskwright.shards.checks import check_shard
from maskwright.shards.manifest import ShardInfo, choose_dtype, parse_shard
from maskwright.shards.writer import ShardWriter
from maskwright.tokenizer.tokenizer import Tokenizer

DONE_SUFFIX = ".done"
_MAX_DONE_BYTES = 1 << 20


@dataclass(frozen=True)
class EncodedChunk:
    """What became of a chunk, with the size of its text.

    `num_without_tokens` documents came out empty and are in none of the other numbers.
    """

    split: Split
    index: int
    shard: ShardInfo
    num_characters: int
    num_bytes: int
    num_words: int
    num_without_tokens: int
    reused: bool = False


def encode_chunk(chunk: Chunk, folder: Path, tokenizer: Tokenizer) -> EncodedChunk:
    """Write ``FOLDER/SPLIT/NAME.*``, or reuse what an earlier run wrote."""
    dtype = choose_dtype(tokenizer.vocab_size)
    text_hash = chunk.hash(tokenizer.fingerprint, dtype)
    done = folder / chunk.split / f"{chunk.name}{DONE_SUFFIX}"
    finished = _read_finished(done, text_hash, dtype, chunk)
    if finished is not None:
        return finished
    writer = ShardWriter(folder / chunk.split, chunk.name, dtype)
    num_characters = num_bytes = num_words = num_without_tokens = 0
    for document in chunk.documents:
        text = document.decode()
        encoded = tokenizer.encode(text)
        if not len(encoded.ids):
            num_without_tokens += 1
            continue
        writer.add(encoded.ids, encoded.word_starts)
        num_characters += len(text)
        num_bytes += len(document)
        num_words += len(text.split())
    shard = writer.close()
    sizes: Any = {
        "num_characters": num_characters,
        "num_bytes": num_bytes,
        "num_words": num_words,
        "num_without_tokens": num_without_tokens,
    }
    write_json(done, {"text": text_hash, "shard": asdict(shard), "sizes": sizes})
    return EncodedChunk(chunk.split, chunk.index, shard, **sizes)


def _read_finished(done: Path, text_hash: str, dtype: str, chunk: Chunk) -> EncodedChunk | None:
    """Return the description in `done` of this very text, if the shard still matches it."""
    try:
        values: dict[str, Any] = read_json(done, _MAX_DONE_BYTES)
        shard = parse_shard(values["shard"])
        if values["text"] != text_hash or shard.name != chunk.name:
            return None
        check_shard(done.parent, shard, dtype, "full")
        return EncodedChunk(chunk.split, chunk.index, shard, **values["sizes"], reused=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ShardError):
        return None
