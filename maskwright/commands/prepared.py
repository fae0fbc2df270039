"""Finds or makes the prepared data of a run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.commands.config import PretrainConfig
from maskwright.config import from_mapping, to_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, InputError
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.fingerprint import fingerprint_input
from maskwright.preparation.locate import locate
from maskwright.preparation.pipeline import prepare
from maskwright.shards.manifest import MANIFEST_NAME, read_manifest
from maskwright.shards.remote import is_remote
from maskwright.tokenizer.config import TokenizerConfig


def is_prepared(folder: Path) -> bool:
    """Whether `folder` is one that ``maskwright prepare`` wrote."""
    return (folder / MANIFEST_NAME).is_file()


def named_folder(config: PretrainConfig) -> Path | None:
    """The prepared folder that the run names as its text, if it does; see `find_only_prepared`."""
    return find_only_prepared(config.text)


def is_elsewhere(config: PretrainConfig) -> bool:
    """Whether the run names a URL as its data: each machine then has a mirror of its own."""
    return any(map(is_remote, config.text))


def find_only_prepared(names: Sequence[str]) -> Path | None:
    """The prepared folder among names of texts, if there is one; of a URL its mirror.

    Raises:
        InputError: other text beside it.
        ShardError: a URL where no prepared data is, or that cannot be read.
    """
    for name in names:
        if is_remote(name) or is_prepared(Path(name)):
            if len(names) > 1:
                raise InputError(f"{name} is prepared data; it cannot be mixed with other text")
            return locate(name)
    return None


def adopt_preparation(config: PretrainConfig, given: Mapping[str, Any]) -> PretrainConfig:
    """`config`, saying how its data was prepared if it names a prepared folder.

    Args:
        given: what the user asked for over recipe and file, nested.

    Raises:
        ConfigError: `given` asks for another preparation, which would have no effect.
    """
    folder = named_folder(config)
    if folder is None:
        return config
    source = read_manifest(folder).source
    corpus = from_mapping(CorpusConfig, source.get("corpus", {}), "corpus.")
    tokenizer = from_mapping(TokenizerConfig, source.get("tokenizer", {}), "tokenizer.")
    adopted = replace(config, corpus=corpus, tokenizer=tokenizer)
    for section in ("corpus", "tokenizer"):
        asked, found = to_mapping(getattr(config, section)), to_mapping(getattr(adopted, section))
        for name in given.get(section, {}):
            if asked[name] != found[name]:
                rule = f"has no effect: {folder} is prepared already, with {found[name]}"
                remedy = "Leave it out, or name the text itself."
                raise ConfigError(f"{section}.{name}", asked[name], rule, remedy)
    return adopted


def prepare_for(config: PretrainConfig, data_dir: Path, report: Callable[[str], None]) -> Path:
    """The prepared folder for a run: the one that it names, or one made from its text."""
    named = named_folder(config)
    if named is not None:
        return named
    fingerprint = _fingerprint(config)
    folder = data_dir / _folder_name(config, fingerprint)
    prepare(config.text, folder, _prepare_config(config), report=report, fingerprint=fingerprint)
    return folder


def find_prepared(config: PretrainConfig, data_dir: Path) -> Path | None:
    """The prepared folder for a run if there is one already."""
    folder = named_folder(config) or data_dir / _folder_name(config, _fingerprint(config))
    return folder if is_prepared(folder) else None


def _prepare_config(config: PretrainConfig) -> PrepareConfig:
    return PrepareConfig(config.corpus, config.tokenizer)


def _fingerprint(config: PretrainConfig) -> str | None:
    """Covers the text itself and all of the configuration that shapes shards.

    None for text from standard input, which cannot be hashed before it is read.
    """
    if "-" in config.text:
        return None
    return fingerprint_input(config.text, _prepare_config(config), seed=0)


def _folder_name(config: PretrainConfig, fingerprint: str | None) -> str:
    """NAME-HASH; standard input is prepared anew each time."""
    if fingerprint is None:
        return f"stdin-{time.strftime('%Y%m%d-%H%M%S')}"
    stem = Path(config.text[0]).name.partition(".")[0] or "text"
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return f"{name}-{fingerprint[:8]}"
