"""Prepared folders, where they are and what they were made with: paths, or mirrors of URLs."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from maskwright.console import tell
from maskwright.errors import InputError, MaskwrightError, ShardError
from maskwright.files import locking_folder
from maskwright.runs.run_directory import is_prepared
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.shards.remote import is_remote, open_mirror, show_path
from maskwright.tokenizer.files import CONFIG, TOKENIZER
from maskwright.tokenizer.template import wrap_inputs, wraps_inputs
from maskwright.tokenizer.tokenizer import Tokenizer


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
