"""Finds or makes the prepared data of a run."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from maskwright.commands.config import PretrainConfig
from maskwright.config import to_mapping
from maskwright.errors import InputError
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import prepare
from maskwright.shards.manifest import MANIFEST_NAME


def is_prepared(folder: Path) -> bool:
    """Whether `folder` is one that ``maskwright prepare`` wrote."""
    return (folder / MANIFEST_NAME).is_file()


def prepare_for(config: PretrainConfig, data_dir: Path, report: Callable[[str], None]) -> Path:
    """The prepared folder for a run: the one that it names, or one made from its text."""
    named = _named_folder(config)
    if named is not None:
        return named
    folder = data_dir / _folder_name(config)
    prepare(config.text, folder, _prepare_config(config), report=report)
    return folder


def find_prepared(config: PretrainConfig, data_dir: Path) -> Path | None:
    """The prepared folder for a run if there is one already."""
    folder = _named_folder(config) or data_dir / _folder_name(config)
    return folder if is_prepared(folder) else None


def _named_folder(config: PretrainConfig) -> Path | None:
    folders = [path for path in config.text if is_prepared(Path(path))]
    if folders and len(config.text) > 1:
        raise InputError(f"{folders[0]} is prepared data; it cannot be mixed with other text")
    return Path(folders[0]) if folders else None


def _prepare_config(config: PretrainConfig) -> PrepareConfig:
    return PrepareConfig(config.corpus, config.tokenizer)


def _folder_name(config: PretrainConfig) -> str:
    """NAME-HASH: the hash covers the paths and all of the configuration that changes the shards."""
    described = json.dumps([config.text, to_mapping(_prepare_config(config))], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    stem = Path(config.text[0]).name.partition(".")[0] or "text"
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return f"{name}-{digest}"
