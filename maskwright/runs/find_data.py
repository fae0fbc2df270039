"""Finds or makes the prepared data of a run."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.config import from_mapping, to_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError, InputError, MaskwrightError, ShardError
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.input_identity import fingerprint_input
from maskwright.preparation.pipeline import prepare
from maskwright.runs.config import PretrainConfig
from maskwright.selection.config import SelectionConfig
from maskwright.shards.cache import locking_file
from maskwright.shards.folder import Mirror, check_json, name_path, open_mirror
from maskwright.shards.manifest import MANIFEST_NAME, TOKENIZER_NAME, read_manifest
from maskwright.shards.remote import is_remote
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.files import CONFIG, MAX_TOKENIZER_BYTES, TOKENIZER
from maskwright.tokenizer.template import wrap_inputs, wraps_inputs
from maskwright.tokenizer.tokenizer import Tokenizer


def is_prepared(folder: Path) -> bool:
    """Return True if ``maskwright prepare`` wrote `folder`."""
    return (folder / MANIFEST_NAME).is_file()


def is_elsewhere(config: PretrainConfig) -> bool:
    """Return True if the data of the run is a URL; each machine then has a mirror of its own."""
    return any(map(is_remote, config.text))


def locate_prepared(names: Sequence[str]) -> list[Path]:
    """Return the prepared folders that `names` mean, or mirrors of URLs; empty if they are text.

    Raises:
        InputError: prepared data and other text together.
        ShardError: a URL where no prepared data is, or that cannot be read.
    """
    prepared = [name for name in names if is_remote(name) or is_prepared(Path(name))]
    folders = [locate(name) for name in prepared]
    other = [name for name in names if name not in prepared]
    if prepared and other:
        raise InputError(
            f"{prepared[0]} is prepared data; it cannot be mixed with other text. Prepare that, "
            f"too: maskwright prepare {shlex.quote(other[0])} --out data/NAME --tokenizer.path "
            f"{shlex.quote(str(folders[0] / TOKENIZER_NAME))}"
        )
    return folders


def named_sources(config: PretrainConfig) -> dict[str, Path]:
    """Return the prepared folders that the run names as its text, by their last path components.

    Raises:
        InputError: other text beside them, or two of one name.
        ShardError: a URL where no prepared data is, or that cannot be read.
    """
    folders = locate_prepared(config.text)
    names = [Path(text).absolute().name for text in config.text]  # that of a URL, too
    for number, name in enumerate(names if folders else []):
        if (first := names.index(name)) < number:
            raise InputError(
                f"{config.text[first]} and {config.text[number]} are both called {name}, and a "
                "mixture knows folders by their names. Rename one of the two."
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

    Of several folders it says what the first one says, whose tokenizer all have.

    Args:
        given: what the user asked for over recipe and file, nested.

    Raises:
        ConfigError: `given` asks for another preparation, which would have no effect; or a mixture
            is asked for of one folder, or of text.
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
        rule = "needs a single prepared folder: the source of a text would give its pair away"
        raise ConfigError("data.pairs", "next", rule, "Take order, or prepare all text as one.")


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
                rule = f"has no effect: {name_path(folder)} is prepared already, with {found[name]}"
                remedy = "Leave it out, or name the text itself."
                raise ConfigError(f"{section}.{name}", asked[name], rule, remedy)
    return adopted


def prepare_for(config: PretrainConfig, data_dir: Path, report: Callable[[str], None]) -> Path:
    """Return the prepared folder for a run: the one that it names, or one made from its text."""
    named = named_folder(config)
    if named is not None:
        return named
    fingerprint = _fingerprint(config)
    folder = data_dir / _folder_name(config, fingerprint)
    is_new = not is_prepared(folder)
    prepare(config.text, folder, _prepare_config(config), report=report, fingerprint=fingerprint)
    if is_new:
        report(f"prepared data is in {folder}; for more runs on it: maskwright pretrain {folder}")
    return folder


def locate_data(
    config: PretrainConfig, data_dir: Path, report: Callable[[str], None]
) -> dict[str, Path]:
    """Return the prepared folders for a run by name: those that it names, or one made from its
    text.
    """
    named = named_sources(config)
    if named:
        return named
    folder = prepare_for(config, data_dir, report)
    return {folder.name: folder}


def find_prepared(config: PretrainConfig, data_dir: Path) -> dict[str, Path]:
    """Return the prepared folders for a run by name if they exist already, else nothing."""
    named = named_sources(config)
    if named:
        return named
    folder = data_dir / _folder_name(config, _fingerprint(config))
    return {folder.name: folder} if is_prepared(folder) else {}


def _prepare_config(config: PretrainConfig) -> PrepareConfig:
    return PrepareConfig(corpus=config.corpus, select=config.select, tokenizer=config.tokenizer)


def _fingerprint(config: PretrainConfig) -> str | None:
    """Hash the text and every setting that shapes shards.

    None for text from standard input, which cannot be hashed before it is read.
    """
    if "-" in config.text:
        return None
    return fingerprint_input(config.text, _prepare_config(config), seed=0)


def _folder_name(config: PretrainConfig, fingerprint: str | None) -> str:
    """Return NAME-HASH; standard input is prepared anew each time."""
    if fingerprint is None:
        return f"stdin-{time.strftime('%Y%m%d-%H%M%S')}"
    stem = Path(config.text[0]).name.partition(".")[0] or "text"
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)
    return f"{name}-{fingerprint[:8]}"


def check_made_for(tokenizer: Tokenizer, data: Path) -> None:
    """Raise unless a prepared folder holds tokens of the model's tokenizer.

    Raises:
        ShardError: it was prepared with another tokenizer.
    """
    made_with = Tokenizer.load(data / TOKENIZER_NAME)
    # A model's own copy says whether the model wants [CLS] and [SEP], the data's need not.
    if wrap_inputs(made_with, bool(wraps_inputs(tokenizer))).fingerprint != tokenizer.fingerprint:
        raise ShardError(
            f"{name_path(data)} was prepared with another tokenizer than the model's. Name "
            "the data that the model was trained on, or "
            "prepare some with tokenizer.path = the model folder."
        )


def locate(name: str) -> Path:
    """Return the folder that `name` means; for a URL, its mirror, with manifest and tokenizer in
    it.

    The other files of a mirror come when a `TokenStore` needs them.

    Raises:
        ShardError: a URL where no prepared data is, or that cannot be read.
    """
    if not is_remote(name):
        return Path(name)
    mirror = open_mirror(name)
    folder = mirror.path / TOKENIZER_NAME
    with locking_file(mirror.path / f".{TOKENIZER_NAME}.lock"):
        if not _is_tokenizer(folder, mirror):
            _fetch_tokenizer(folder, mirror)
    return mirror.path


def _is_tokenizer(path: Path, mirror: Mirror) -> bool:
    """Return True if the tokenizer of the tokens is at `path`, a folder or a ``tokenizer.json``."""
    try:
        return Tokenizer.load(path).fingerprint == mirror.manifest.tokenizer_fingerprint
    except MaskwrightError:
        return False


def _fetch_tokenizer(folder: Path, mirror: Mirror) -> None:
    """Download the tokenizer. The manifest has no sums of its files, but the fingerprint of them
    all.
    """

    def check(path: Path) -> None:
        if not _is_tokenizer(path, mirror):
            raise ShardError(f"{path} is not the tokenizer that the tokens were made with.")

    most = MAX_TOKENIZER_BYTES
    mirror.remote.fetch(f"{TOKENIZER_NAME}/{CONFIG}", folder / CONFIG, most, check_json)
    mirror.remote.fetch(f"{TOKENIZER_NAME}/{TOKENIZER}", folder / TOKENIZER, most, check)
