"""Where a run's prepared data is, and what it fixes: named folders, mirrors, or text.

*Named* is what the user wrote. `find_or_prepare` may prepare text for hours, `find_existing` never
does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from maskwright.config import from_mapping, to_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, InputError
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import fingerprint_input
from maskwright.preparation.pipeline import prepare_folder
from maskwright.runs.config import PretrainConfig
from maskwright.runs.prepared_folders import locate_prepared
from maskwright.runs.run_directory import is_prepared
from maskwright.runs.settled import Settled
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import read_manifest
from maskwright.shards.remote import is_remote, show_path
from maskwright.tokenizer.config import TokenizerConfig


def is_elsewhere(config: PretrainConfig) -> bool:
    """Return True if the data of the run is remote; each machine then has its own mirror."""
    return any(map(is_remote, config.text))


def named_sources(config: PretrainConfig) -> dict[str, Path]:
    """Return the prepared folders that the run names as its text, by their last path components.

    Raises:
        InputError: the run also names text, or two folders of one name.
        ShardError: a URL cannot be read, or is not prepared data.
    """
    folders = locate_prepared(config.text)
    names = [Path(text).absolute().name for text in config.text]  # that of a URL, too
    for number, name in enumerate(names if folders else []):
        if (first := names.index(name)) < number:
            raise InputError(
                f"{config.text[first]} and {config.text[number]} are both called {name}, but "
                "the folders of a mixture need different names. Rename one of the two."
            )
    return dict(zip(names, folders, strict=False))  # no folders if it is text


def named_folder(config: PretrainConfig) -> Path | None:
    """Return the first prepared folder that the run names as its text, or None.

    Raises:
        InputError, ShardError: as `named_sources`.
    """
    return next(iter(named_sources(config).values()), None)


class Preparation(NamedTuple):
    """What a prepared folder states: the settings that it was made with."""

    folder: Path
    corpus: CorpusConfig
    select: SelectionConfig
    tokenizer: TokenizerConfig


def read_preparations(config: PretrainConfig) -> tuple[Preparation, ...]:
    """Return what the prepared folders state that the run names as its text; none for text.

    Raises:
        InputError, ShardError: as `named_sources`.
    """
    return tuple(map(_read_preparation, named_sources(config).values()))


def _read_preparation(folder: Path) -> Preparation:
    source = read_manifest(folder).source
    return Preparation(
        folder,
        from_mapping(CorpusConfig, source.get("corpus", {}), "corpus."),
        from_mapping(SelectionConfig, source.get("select", {}), "select."),
        from_mapping(TokenizerConfig, source.get("tokenizer", {}), "tokenizer."),
    )


def adopt_preparation(settled: Settled, preparations: Sequence[Preparation]) -> Settled:
    """Return the configuration with the settings of its prepared folder, if it names one.

    Several folders have one tokenizer, and the settings of the first one are returned. Raise
    ConfigError if the user gave other settings, which would have no effect; or if a mixture is set
    for one folder, or for text.
    """
    _check_mixture(settled.config, len(preparations))
    adopted = [_adopt_folder(settled, each) for each in preparations]
    return settled.change(adopted[0], "data") if adopted else settled


def _check_mixture(config: PretrainConfig, num_folders: int) -> None:
    for field in config.mixture.given if num_folders < 2 else ():
        rule = f"needs two prepared folders or more, and there are {num_folders}"
        remedy = "Name them: maskwright pretrain data/wiki data/books."
        raise ConfigError(f"mixture.{field}", config.mixture.show(field), rule, remedy)
    if num_folders > 1 and config.data.pairs == "next":
        rule = "needs a single prepared folder: pairs of two sources would be easy to detect"
        raise ConfigError("data.pairs", "next", rule, "Use order, or prepare it in one folder.")


def _adopt_folder(settled: Settled, made: Preparation) -> PretrainConfig:
    config, (folder, corpus, select, tokenizer) = settled.config, made
    adopted = replace(config, corpus=corpus, select=select, tokenizer=tokenizer)
    for section in ("corpus", "select", "tokenizer"):
        asked, found = to_mapping(getattr(config, section)), to_mapping(getattr(adopted, section))
        for name in settled.layers.given.get(section, {}):
            if asked[name] != found[name]:
                rule = f"has no effect: {show_path(folder)} is prepared already, with {found[name]}"
                remedy = "Remove it, or name the text itself."
                raise ConfigError(f"{section}.{name}", asked[name], rule, remedy)
    return adopted


def find_or_prepare(
    config: PretrainConfig, data_dir: Path, report: Callable[[str], None]
) -> dict[str, Path]:
    """Return a run's prepared folders by name: those it names, or one prepared from its text."""
    if named := named_sources(config):
        return named
    report(f"looking in {data_dir} for prepared data of this text")
    name, fingerprint = _name_folder(config)
    folder = data_dir / name
    is_new = not is_prepared(folder)
    settings = _prepare_config(config)
    prepare_folder(config.text, folder, settings, 0, report, fingerprint, config.private)
    if is_new:
        report(f"prepared data is in {folder}; for more runs on it: maskwright pretrain {folder}")
    return {folder.name: folder}


def find_existing(config: PretrainConfig, data_dir: Path) -> dict[str, Path]:
    """Return the prepared folders of a run by name; empty if they do not exist yet."""
    if named := named_sources(config):
        return named
    folder = data_dir / _name_folder(config)[0]
    return {folder.name: folder} if is_prepared(folder) else {}


def _prepare_config(config: PretrainConfig) -> PrepareConfig:
    return PrepareConfig(corpus=config.corpus, select=config.select, tokenizer=config.tokenizer)


def _name_folder(config: PretrainConfig) -> tuple[str, str | None]:
    """Return NAME-HASH and the whole hash, of the text and every setting that changes shards.

    Standard input cannot be hashed before it is read, and is prepared each time.
    """
    if "-" in config.text:
        return f"stdin-{time.strftime('%Y%m%d-%H%M%S')}", None
    fingerprint = fingerprint_input(config.text, _prepare_config(config), seed=0)
    stem = Path(config.text[0]).name.partition(".")[0] or "text"
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return f"{name}-{fingerprint[:8]}", fingerprint
