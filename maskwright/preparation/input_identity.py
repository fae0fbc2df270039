"""Fingerprints of inputs, so that the same text is not prepared twice.

A fingerprint covers the content of the files (`maskwright.corpus.fingerprints`), every
configuration value that changes the result, and the version of the shard format.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from maskwright.config import to_mapping
from maskwright.corpus.blocks import Block, choose_block_bytes, cut_into_blocks, estimate_bytes
from maskwright.corpus.fingerprints import identify_source
from maskwright.corpus.readers.hub import parse_hub_name
from maskwright.corpus.sources import find_sources, list_files
from maskwright.preparation.config import PrepareConfig
from maskwright.provenance import find_version
from maskwright.selection.contamination import find_evaluations
from maskwright.shards.manifest import VERSION
from maskwright.tokenizer.tokenizer import Tokenizer


def describe_config(config: PrepareConfig) -> dict[str, Any]:
    """Return the part of the configuration that the result depends on, as plain values."""
    plain = to_mapping(config)
    for name in ("workers", "engine", "cluster"):
        del plain[name]
    del plain["select"]["describe"]
    return plain


def list_blocks(
    paths: Sequence[str],
    config: PrepareConfig,
    counts: Counter[str],
    report: Callable[[str], None] = lambda line: None,
) -> tuple[list[Block], int]:
    """Return the blocks of ``corpus.valid_text`` and then of `paths`, and the number of the former.

    Ignored files are counted by reason.

    Raises:
        CorpusError: an input that is missing.
    """
    sources = find_sources(paths, counts)
    named = config.corpus.valid_text
    held_out = find_sources(named, counts) if named else []
    size = choose_block_bytes(sum(map(estimate_bytes, sources)), config.block_megabytes * 1_000_000)
    blocks = [cut_into_blocks(part, config.corpus, size, report) for part in (held_out, sources)]
    return [*blocks[0], *blocks[1]], len(blocks[0])


def fingerprint_input(paths: Sequence[str], config: PrepareConfig, seed: int) -> str:
    """Return the sha256 (hex) of the text that `paths` name and of its configuration.

    Raises:
        CorpusError: an input that is missing or cannot be read.
        TokenizerError: `config.tokenizer.path` holds no tokenizer.
    """
    blocks, num_held_out = list_blocks(paths, config, Counter())
    with ThreadPoolExecutor() as threads:  # hashing releases the GIL
        identities = list(threads.map(identify_block, blocks))
    return fingerprint_blocks(identities, num_held_out, config, seed)


def fingerprint_blocks(
    identities: Iterable[Any], num_held_out: int, config: PrepareConfig, seed: int
) -> str:
    """Return the fingerprint of an input whose blocks have these identities; see `identify_block`.

    Raises:
        CorpusError, TokenizerError: as `fingerprint_input`.
    """
    evaluations = find_evaluations(config.select.decontaminate, Counter())
    other = [[identify_source(source) for source in evaluations], num_held_out, seed]
    described = json.dumps([VERSION, _describe(config), other, *identities], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()


def identify_plan(
    blocks: Sequence[Block], num_held_out: int, config: PrepareConfig, seed: int
) -> str:
    """Return the sha256 (hex) of a preparation without reading the text: files are identified by
    name, size and modification time.

    Raises:
        CorpusError, TokenizerError: as `fingerprint_input`.
    """
    evaluations = find_evaluations(config.select.decontaminate, Counter())
    sources = [*chain(evaluations, *(block.sources for block in blocks))]
    folders = (parse_hub_name(source.name).folder for source in sources if source.kind == "hub")
    paths = {source.path for source in sources if source.path}
    paths.update(*map(list_files, filter(None, folders)))
    stats = [(str(path), path.stat()) for path in paths if path.exists()]
    files = sorted([name, stat.st_size, stat.st_mtime_ns] for name, stat in stats)
    plain = [block.to_plain() for block in blocks], _describe(config), config.select.describe
    # Another version may clean or cut text in another way.
    versions = [VERSION, *map(find_version, ("maskwright", "tokenizers"))]
    identity = [files, plain, num_held_out, seed, versions]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _describe(config: PrepareConfig) -> dict[str, Any]:
    """Return the configuration as plain values; the tokenizer is identified by its content."""
    plain, tokenizer = describe_config(config), config.tokenizer
    if tokenizer.path is None:
        # Without a tokenizer to extend or replace, these have no effect.
        del plain["tokenizer"]["extend_vocab"], plain["tokenizer"]["replace_vocab"]
    elif tokenizer.replace_vocab:
        plain["tokenizer"]["path"] = Tokenizer.load(tokenizer.path).fingerprint
        del plain["tokenizer"]["vocab_size"]  # that of replace_vocab
    else:
        base = Tokenizer.load(tokenizer.path).fingerprint
        extension = tokenizer.extend_vocab, tokenizer.min_frequency, tokenizer.sample_megabytes
        plain["tokenizer"] = [base, *extension] if tokenizer.extend_vocab else base
    del plain["corpus"]["valid_text"], plain["select"]["decontaminate"]
    return plain


def identify_block(block: Block) -> list[list[Any]]:
    """Return the identity of each source of a block; errors as in `identify_source`."""
    return [identify_source(source) for source in block.sources]
