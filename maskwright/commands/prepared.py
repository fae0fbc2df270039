"""Finds or makes the prepared data of a run."""

import time
from collections.abc import Callable
from pathlib import Path

from maskwright.commands.config import PretrainConfig
from maskwright.errors import InputError
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.fingerprint import fingerprint_input
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
    """NAME-HASH: the hash covers the text itself and all of the configuration that shapes shards.

    Text from standard input cannot be hashed before it is read, so it is prepared anew each time.
    """
    if "-" in config.text:
        return f"stdin-{time.strftime('%Y%m%d-%H%M%S')}"
    digest = fingerprint_input(config.text, _prepare_config(config), seed=0)[:8]
    stem = Path(config.text[0]).name.partition(".")[0] or "text"
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return f"{name}-{digest}"
