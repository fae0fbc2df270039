"""Where a run's prepared data is: named folders, mirrors, or text that is prepared now.

*Named* is what the user wrote. To *locate* is to return its folder, or the mirror of its URL.
`find_or_prepare` may prepare text for hours, `find_existing` never does.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.config import from_mapping, to_mapping
from maskwright.console import tell
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, InputError, MaskwrightError, ShardError
from maskwright.files import locking_folder
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import fingerprint_input
from maskwright.preparation.pipeline import prepare_folder
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import is_prepared
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import TOKENIZER_NAME, read_manifest
from maskwright.shards.remote import is_remote, open_mirror, show_path
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.files import CONFIG, TOKENIZER
from maskwright.tokenizer.template import wrap_inputs, wraps_inputs
from maskwright.tokenizer.tokenizer import Tokenizer


def is_elsewhere(config: PretrainConfig) -> bool:
    """Return True if the data of the run is remote; each machine then has its own mirror."""
    return any(map(is_remote, config.text))


def locate_prepared(names: Sequence[str]) -> list[Path]:
    """Return the prepared folders of `names`, or mirrors of URLs; empty for text.

    Raises:
        InputError: `names` are prepared data and text.
        ShardError: a URL cannot be read, or is not prepared data.
    """
    prepared = [name for name in names if is_remote(name) or is_prepared(Path(name))]
    folders = [locate(name) for name in prepared]
    other = [name for name in names if name not in prepared]
    if prepared and other:
        raise InputError(
            f"{prepared[0]} is prepared data; it cannot be mixed with other text. Prepare the "
            f"text, too: maskwright prepare {shlex.quote(other[0])} --out data/NAME "
            f"--tokenizer.path {shlex.quote(str(folders[0] / TOKENIZER_NAME))}"
        )
    return folders


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


def adopt_preparation(config: PretrainConfig, given: Mapping[str, Any]) -> PretrainConfig:
    """Return `config` with the preparation settings of the prepared folder that it names, if any.

    Several folders have one tokenizer, and the settings of the first one are returned. Raise
    ConfigError if `given`, which the user set over the recipe, has other settings, which would
    have no effect; or if a mixture is set for one folder, or for text.
    """
    folders = named_sources(config)
    _check_mixture(config, len(folders))
    adopted = [_adopt_folder(config, folder, given) for folder in folders.values()]
    return adopted[0] if adopted else config


def _check_mixture(config: PretrainConfig, num_folders: int) -> None:
    for field in config.mixture.given if num_folders < 2 else ():
        rule = f"needs two prepared folders or more, and there are {num_folders}"
        remedy = "Name them: maskwright pretrain data/wiki data/books."
        raise ConfigError(f"mixture.{field}", config.mixture.show(field), rule, remedy)
    if num_folders > 1 and config.data.pairs == "next":
        rule = "needs a single prepared folder: pairs of two sources would be easy to detect"
        raise ConfigError("data.pairs", "next", rule, "Use order, or prepare it in one folder.")


def _adopt_folder(config: PretrainConfig, folder: Path, given: Mapping[str, Any]) -> PretrainConfig:
    source = read_manifest(folder).source
    corpus = from_mapping(CorpusConfig, source.get("corpus", {}), "corpus.")
    select = from_mapping(SelectionConfig, source.get("select", {}), "select.")
    tokenizer = from_mapping(TokenizerConfig, source.get("tokenizer", {}), "tokenizer.")
    adopted = replace(config, corpus=corpus, select=select, tokenizer=tokenizer)
    for section in ("corpus", "select", "tokenizer"):
        asked, found = to_mapping(getattr(config, section)), to_mapping(getattr(adopted, section))
        for name in given.get(section, {}):
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


def check_made_for(tokenizer: Tokenizer, data: Path) -> None:
    """Raise ShardError unless a prepared folder holds tokens of the model's tokenizer."""
    made_with = Tokenizer.load(data / TOKENIZER_NAME)
    # Only the model's copy must state whether inputs have [CLS] and [SEP].
    if wrap_inputs(made_with, bool(wraps_inputs(tokenizer))).fingerprint != tokenizer.fingerprint:
        raise ShardError(
            f"{show_path(data)} was prepared with another tokenizer than the model's. Name "
            "the data that the model was trained on, or "
            "prepare the text with tokenizer.path = the model folder."
        )


def locate(name: str) -> Path:
    """Return the folder of `name`; for a URL its mirror, with manifest and tokenizer.

    A `TokenStore` downloads the other files of a mirror when it needs them.

    Raises:
        ShardError: a URL cannot be read, or is not prepared data.
    """
    if not is_remote(name):
        return Path(name)
    mirror = open_mirror(name)
    folder = mirror.path / TOKENIZER_NAME
    with locking_folder(folder, lambda: None, tell):
        for _ in range(2):  # the first one may be damaged in the cache
            files = [mirror.place(f"{TOKENIZER_NAME}/{file}") for file in (CONFIG, TOKENIZER)]
            # The manifest has no hashes of these files.
            with suppress(MaskwrightError):
                if Tokenizer.load(folder).fingerprint == mirror.manifest.tokenizer_fingerprint:
                    return mirror.path
            for file in files:
                file.unlink()
    raise ShardError(
        f"{mirror.url}/{TOKENIZER_NAME} is not the tokenizer that the tokens were made with. Copy "
        "the prepared folder there again."
    )
