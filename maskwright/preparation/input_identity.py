"""What identifies an input, so that the same text is not prepared twice.

The fingerprint covers the content of the files and not their names, all of the configuration
that changes the result, and the version of the shard format. A dataset on the hub counts by its
name: a change there is not noticed; one in a local folder counts by the files in it.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from maskwright.config import to_mapping
from maskwright.corpus.readers.hub import parse_hub_name
from maskwright.corpus.sources import Source, find_sources, list_files
from maskwright.errors import CorpusError
from maskwright.files import hash_file
from maskwright.preparation.config import PrepareConfig
from maskwright.selection.contamination import find_evaluations
from maskwright.shards.manifest import VERSION
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer


def describe_config(config: PrepareConfig) -> dict[str, Any]:
    """Return the part of the configuration that the result depends on, as plain values."""
    plain = to_mapping(config)
    for name in ("workers", "engine", "cluster"):
        del plain[name]
    del plain["select"]["describe"]
    return plain


def fingerprint_input(paths: Sequence[str], config: PrepareConfig, seed: int) -> str:
    """Return the sha256 (hex) of the text that `paths` name and of how it is to be prepared.

    Raises:
        CorpusError: an input that is missing or cannot be read.
        TokenizerError: `config.tokenizer.path` holds no tokenizer.
    """
    plain = describe_config(config)
    if config.tokenizer.path is None:
        del plain["tokenizer"]["extend_vocab"]  # of nothing
    else:
        base = Tokenizer.load(config.tokenizer.path).fingerprint
        plain["tokenizer"] = _describe_extension(base, config.tokenizer)
    held_out = plain["corpus"].pop("valid_text")
    if held_out:
        plain["corpus"]["valid_text"] = [_identify(source) for source in find_sources(held_out)]
    evaluations = plain["select"]["decontaminate"]
    plain["select"]["decontaminate"] = (
        [_identify(source) for source in find_evaluations(evaluations, Counter())]
        if evaluations
        else []
    )
    sources = [_identify(source) for source in find_sources(paths)]
    described = json.dumps([VERSION, plain, seed, sources], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()


def _describe_extension(base: str, config: TokenizerConfig) -> Any:
    """Describe an existing tokenizer by its content, and its extension, if it is extended."""
    if not config.extend_vocab:
        return base
    return [base, config.extend_vocab, config.min_frequency, config.sample_megabytes]


def _identify(source: Source) -> list[str]:
    if source.path is not None:
        return [source.kind, source.compression, _hash_content(source.path)]
    if source.kind == "pydocs":
        return ["pydocs", sys.version, *(_version(name) for name in ("numpy", "torch"))]
    if source.kind == "hub" and (folder := (name := parse_hub_name(source.name)).folder):
        # Here names count too: they tell `datasets` which file is of which split.
        names_and_hashes = (
            part
            for path in list_files(folder)
            for part in (path.relative_to(folder).as_posix(), _hash_content(path))
        )
        return ["hub folder", name.config, name.field, *names_and_hashes]
    return [source.kind, source.name]


def _hash_content(path: Path) -> str:
    try:
        return hash_file(path)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
