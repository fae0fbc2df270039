"""``maskwright prepare``: corpus → tokenizer → shards → manifest.

The text is read twice when a tokenizer is to be trained: for its sample, and to be encoded. The
folder tells how far a preparation has come, so that it can be interrupted at any moment and
continued: ``preparing.json`` names the input, then ``tokenizer/`` appears, then shard after shard,
last of all ``manifest.json``.
"""

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.errors import ShardError
from maskwright.files import replacing_folder, write_json
from maskwright.preparation.chunks import gather_chunks
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.encode import DONE_SUFFIX, EncodedChunk
from maskwright.preparation.fingerprint import describe_config, fingerprint_input
from maskwright.preparation.splits import split_corpus
from maskwright.preparation.workers import count_cores, encode_chunks
from maskwright.shards.manifest import (
    COUNTS_NAME,
    MANIFEST_NAME,
    SPLITS,
    TOKEN_DTYPES,
    TOKENIZER_NAME,
    TOKENS,
    FileInfo,
    Manifest,
    SplitInfo,
    choose_dtype,
    read_manifest,
    write_manifest,
)
from maskwright.shards.writer import write_array
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

STATE_NAME = "preparing.json"
STDIN_NAME = "stdin.txt"

Report = Callable[[str], None]


def prepare(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    seed: int = 0,
    report: Report = lambda line: None,
) -> Manifest:
    """Prepares the text that `paths` name into the folder `out`.

    The result depends on the text, the configuration and the seed alone: not on the number of
    workers, nor on interruptions. If it is there already, nothing is done.

    Args:
        paths: files, folders, patterns, ``pydocs``, ``hf:NAME``, ``-`` (see `find_sources`).
        out: the prepared folder; made if it is not there.
        config: what to do.
        seed: draws the tokenizer's sample.
        report: called with a line about each stage.

    Raises:
        CorpusError: text that cannot be read, or none.
        TokenizerError: the text is too little for the vocabulary.
        ShardError: `out` holds something else.
    """
    _check_use(out)
    inputs = _spool_stdin(paths, out) if "-" in paths else list(paths)
    fingerprint = fingerprint_input(inputs, config, seed)
    finished = _claim_folder(out, fingerprint)
    if finished is not None:
        report(f"{out}: prepared before from the same text and configuration, reused")
        _tidy(out)
        return finished
    tokenizer = _obtain_tokenizer(inputs, out, config, seed, report)
    dropped: Counter[str] = Counter()
    documents = split_corpus(inputs, config.corpus, dropped)
    chunks = gather_chunks(documents, config.shard_megabytes * 1_000_000)
    encoded = encode_chunks(chunks, out, tokenizer, config.workers or count_cores())
    results = sorted(_watch(encoded, report), key=lambda chunk: chunk.index)
    dropped["without tokens"] += sum(chunk.num_without_tokens for chunk in results)
    manifest = Manifest(
        vocab_size=tokenizer.vocab_size,
        dtype=choose_dtype(tokenizer.vocab_size),
        tokenizer_fingerprint=tokenizer.fingerprint,
        fingerprint=fingerprint,
        source={"paths": list(paths), "seed": seed, **describe_config(config)},
        splits={split: _sum_split(split, results) for split in SPLITS},
        unigram_counts=_count_unigrams(out, tokenizer.vocab_size, results),
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
    )
    write_manifest(out, manifest)
    _tidy(out)
    return manifest


def _spool_stdin(paths: Sequence[str], out: Path) -> list[str]:
    """Standard input can be read only once; a file can be read again."""
    out.mkdir(parents=True, exist_ok=True)
    if not any(out.iterdir()):  # so that an interrupted reading leaves a folder known as ours
        write_json(out / STATE_NAME, {"fingerprint": "standard input was not read to its end"})
    spool = out / STDIN_NAME
    with spool.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return [str(spool) if path == "-" else path for path in paths]


def _check_use(out: Path) -> None:
    """Refuses a path that holds anything but prepared data, finished or not.

    Raises:
        ShardError: it does.
    """
    ours = (out / MANIFEST_NAME).is_file() or (out / STATE_NAME).is_file()
    if out.is_file() or (not ours and out.is_dir() and any(out.iterdir())):
        raise ShardError(f"{out} is in use for something else. Choose another --out.")


def _claim_folder(out: Path, fingerprint: str) -> Manifest | None:
    """The manifest if `out` is finished; None if it is ours to fill, or to go on filling.

    Raises:
        ShardError: `out` holds other data.
    """
    state = out / STATE_NAME
    if (out / MANIFEST_NAME).is_file():
        manifest = read_manifest(out)
        if manifest.fingerprint == fingerprint:
            return manifest
        (out / STDIN_NAME).unlink(missing_ok=True)
        raise ShardError(
            f"{out} was prepared from other text or with another configuration. "
            "Choose another --out, or remove that folder."
        )
    if state.is_file() and _read_state(state) != fingerprint:  # unfinished, and not wanted
        for name in (TOKENIZER_NAME, *SPLITS):
            shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(state, {"fingerprint": fingerprint})
    return None


def _read_state(state: Path) -> str:
    try:
        values: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
        return str(values["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _obtain_tokenizer(
    paths: Sequence[str], out: Path, config: PrepareConfig, seed: int, report: Report
) -> Tokenizer:
    """The tokenizer in `out`, put there by an earlier run or now."""
    folder = out / TOKENIZER_NAME
    if folder.is_dir():
        return Tokenizer.load(folder)
    if config.tokenizer.path is not None:
        tokenizer = Tokenizer.load(config.tokenizer.path)
    else:
        report(f"training a {config.tokenizer.kind} tokenizer on the text")
        start = time.monotonic()
        documents = split_corpus(paths, config.corpus, Counter())
        texts = (text for split, text in documents if split == "train")
        tokenizer = train_tokenizer(texts, config.tokenizer, seed)
        seconds = time.monotonic() - start
        report(f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds")
    with replacing_folder(folder) as temporary:
        tokenizer.save(temporary)
    return tokenizer


def _watch(encoded: Iterator[EncodedChunk], report: Report) -> Iterator[EncodedChunk]:
    start = time.monotonic()
    num_bytes = num_reused = 0
    for chunk in encoded:
        num_bytes += chunk.num_bytes
        num_reused += chunk.reused
        seconds = time.monotonic() - start
        kept = f", {num_reused} shards kept from before" if num_reused else ""
        rate = num_bytes / 1e6 / max(seconds, 1e-9)
        report(f"encoded {num_bytes / 1e6:.1f} MB of text, {rate:.1f} MB/s{kept}")
        yield chunk


def _sum_split(split: str, results: Sequence[EncodedChunk]) -> SplitInfo:
    chunks = [chunk for chunk in results if chunk.split == split]
    return SplitInfo(
        num_tokens=sum(chunk.shard.num_tokens for chunk in chunks),
        num_documents=sum(chunk.shard.num_documents for chunk in chunks),
        num_characters=sum(chunk.num_characters for chunk in chunks),
        num_bytes=sum(chunk.num_bytes for chunk in chunks),
        num_words=sum(chunk.num_words for chunk in chunks),
        shards=tuple(chunk.shard for chunk in chunks),
    )


def _count_unigrams(out: Path, vocab_size: int, results: Sequence[EncodedChunk]) -> FileInfo:
    counts = np.zeros(vocab_size, np.int64)
    dtype = TOKEN_DTYPES[choose_dtype(vocab_size)]
    for chunk in results:
        if chunk.split == "train":
            tokens = np.fromfile(out / "train" / f"{chunk.shard.name}.{TOKENS}", dtype)
            counts += np.bincount(tokens, minlength=vocab_size)
    return write_array(out / COUNTS_NAME, counts.astype("<u8"))


def _tidy(out: Path) -> None:
    """Removes what only an unfinished preparation needs."""
    for split in SPLITS:
        for done in (out / split).glob(f"*{DONE_SUFFIX}"):
            done.unlink()
    for name in (STATE_NAME, STDIN_NAME):
        (out / name).unlink(missing_ok=True)
