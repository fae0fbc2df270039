"""``maskwright prepare``: corpus → selection → tokenizer → shards → manifest.

The text is read twice when a tokenizer is to be trained: for its sample, and to be encoded. The
folder tells how far a preparation has come, so that it can be interrupted at any moment and
continued: ``preparing.json`` names the input, then ``tokenizer/`` appears, then shard after shard,
last of all ``manifest.json``.
"""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.corpus.progress import ReadProgress
from maskwright.errors import CorpusError
from maskwright.files import naming_file
from maskwright.formatting import count_noun
from maskwright.preparation.chunks import gather_chunks
from maskwright.preparation.cluster.engine import clear_spools
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.dumps import write_down_dumps
from maskwright.preparation.encode import EncodedChunk
from maskwright.preparation.encode_chunks import encode_chunks
from maskwright.preparation.engines import Engine, choose_engine
from maskwright.preparation.folder import (
    STDIN_NAME,
    TASKS_NAME,
    Report,
    check_use,
    claim_folder,
    making_folder,
    mark_unfinished,
    tidy_folder,
)
from maskwright.preparation.input_identity import describe_config, fingerprint_input
from maskwright.preparation.select_documents import check_steps, read_tally, write_down_selected
from maskwright.preparation.splits import settle_valid_fraction, split_corpus
from maskwright.preparation.vocabulary import EXTENSION_KEY, obtain_tokenizer
from maskwright.shards.manifest import (
    COUNTS_NAME,
    SPLITS,
    TOKEN_DTYPES,
    TOKENS,
    FileInfo,
    Manifest,
    SplitInfo,
    choose_dtype,
    write_manifest,
)
from maskwright.shards.writer import write_array

# 15 % of so many tokens are some 1,500 masks: an accuracy of 0.3 is known to within 0.025.
_FEW_HELD_OUT = 10_000
VALID_FRACTION_KEY = "valid_fraction"  # in the manifest's description of its source: as chosen


def prepare(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    seed: int = 0,
    report: Report = lambda line: None,
    fingerprint: str | None = None,
) -> Manifest:
    """Prepare the text that `paths` name into the folder `out`.

    The result depends on the text, the configuration and the seed alone: not on the engine, the
    number of workers, nor on interruptions. If it is there already and undamaged, nothing is done,
    or the text is read again for what ``config.select.describe`` asks for. While another process
    prepares `out`, this one waits.

    Args:
        paths: files, folders, patterns, ``pydocs``, ``hf:NAME``, ``-`` (see `find_sources`).
        out: the prepared folder; made if it is not there.
        config: what to do.
        seed: draws the tokenizer's sample.
        report: called with a line about each stage.
        fingerprint: that of the input, if it is known (`fingerprint_input`); else it is worked out.

    Raises:
        CorpusError: text that cannot be read, or none.
        TokenizerError: the text holds no word, or fewer new tokens than it is to add.
        ShardError: `out` holds something else.
        ConfigError: what `config.engine` needs is not there.
    """
    engine = choose_engine(config, out, report)
    if fingerprint is None and "-" not in paths:
        fingerprint = fingerprint_input(paths, config, seed)
    with making_folder(out, report):
        check_use(out)
        clear_spools(out / TASKS_NAME, report)
        inputs = _spool_stdin(paths, out) if "-" in paths else list(paths)
        fingerprint = fingerprint or fingerprint_input(inputs, config, seed)
        source = {"paths": list(paths), "seed": seed, **describe_config(config)}
        finished = claim_folder(out, fingerprint, source, report)
        if finished is None:
            finished = _fill_folder(inputs, out, config, fingerprint, source, engine, report)
        else:
            report(f"{out}: prepared before from the same text and configuration, reused")
            if config.select.describe and not _is_described(out):
                report("the text is read again, to be described; the shards stay as they are")
                _select(inputs, out, config, Counter(), engine, report)
        tidy_folder(out)
        return finished


def _fill_folder(
    inputs: Sequence[str],
    out: Path,
    config: PrepareConfig,
    fingerprint: str,
    source: dict[str, Any],
    engine: Engine,
    report: Report,
) -> Manifest:
    dropped: Counter[str] = Counter()
    inputs, config = _select(inputs, out, config, dropped, engine, report)
    with _naming(inputs, source["paths"]):
        config = replace(config, corpus=settle_valid_fraction(inputs, config.corpus))
        if not config.corpus.valid_text:
            source = {**source, VALID_FRACTION_KEY: config.corpus.valid_fraction}
        tokenizer, extension = obtain_tokenizer(inputs, out, config, source["seed"], report)
        progress = ReadProgress()
        documents = split_corpus(inputs, config.corpus, dropped, progress)
        chunks = gather_chunks(documents, config.shard_megabytes * 1_000_000)
        encoded = encode_chunks(progress.hand_out(chunks), out, engine)
        results = sorted(_watch(encoded, report, progress), key=lambda chunk: chunk.index)
    if extension:
        source = {**source, EXTENSION_KEY: extension}
    dropped["without tokens"] += sum(chunk.num_without_tokens for chunk in results)
    manifest = Manifest(
        vocab_size=tokenizer.vocab_size,
        dtype=choose_dtype(tokenizer.vocab_size),
        tokenizer_fingerprint=tokenizer.fingerprint,
        fingerprint=fingerprint,
        source=source,
        splits={split: _sum_split(split, results) for split in SPLITS},
        unigram_counts=_count_unigrams(out, tokenizer.vocab_size, results),
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
    )
    write_manifest(out, manifest)
    report(_summarize(manifest))
    return manifest


@contextmanager
def _naming(written: Sequence[str], given: Sequence[str]) -> Generator[None]:
    """Name in errors what the user has named, not the file that was written from it."""
    try:
        yield
    except CorpusError as error:
        raise CorpusError(str(error).replace(", ".join(written), ", ".join(given))) from None


def _select(
    inputs: Sequence[str],
    out: Path,
    config: PrepareConfig,
    dropped: Counter[str],
    engine: Engine,
    report: Report,
) -> tuple[list[str], PrepareConfig]:
    """Return what is left to read of `inputs`, and the configuration to read it with."""
    check_steps(config.select)
    paths, config = write_down_dumps(inputs, out, config, dropped, engine, report)
    if config.select.does_anything:
        paths = write_down_selected(paths, out, config, dropped, engine, report)
    return paths, config


def _is_described(out: Path) -> bool:
    tally = read_tally(out)
    return tally is not None and bool(tally.languages)


def _summarize(manifest: Manifest) -> str:
    train, valid = manifest.splits["train"], manifest.splits["valid"]
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in manifest.dropped.items())
    summary = (
        f"{count_noun(train.num_documents, 'document')}, "
        f"{count_noun(train.num_tokens, 'token')} to train on; "
        f"{count_noun(valid.num_documents, 'document')}, "
        f"{count_noun(valid.num_tokens, 'token')} held out; "
        f"dropped or repaired: {dropped or 'nothing'}"
    )
    if valid.num_tokens >= _FEW_HELD_OUT:
        return summary
    return (
        f"{summary}\nso little text is held out that scores will be rough: raise "
        "--corpus.valid_fraction or name files with --corpus.valid_text"
    )


def _spool_stdin(paths: Sequence[str], out: Path) -> list[str]:
    """Write standard input to a file, because it can be read only once."""
    if not any(out.iterdir()):  # so that an interrupted reading leaves a folder known as ours
        mark_unfinished(out, "standard input was not read to its end")
    spool = out / STDIN_NAME
    with naming_file(spool), spool.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return [str(spool) if path == "-" else path for path in paths]


def _watch(
    encoded: Iterator[EncodedChunk], report: Report, progress: ReadProgress
) -> Iterator[EncodedChunk]:
    """Report how far encoding is."""
    start, said = time.monotonic(), ""
    num_bytes = num_reused = 0
    for chunk in encoded:
        progress.finish()
        num_bytes += chunk.num_bytes
        num_reused += chunk.reused
        seconds = time.monotonic() - start
        kept = f", {num_reused} shards kept from before" if num_reused else ""
        rate = num_bytes / 1e6 / max(seconds, 1e-9)
        line = f"encoded {num_bytes / 1e6:.1f} MB of text, {rate:.1f} MB/s{kept}{progress}"
        if line != said:  # as of the few documents that a little text holds out
            report(line)
        said = line
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
