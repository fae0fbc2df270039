"""From the name of prepared data, a path or a URL, to a folder on this machine."""

from pathlib import Path

from maskwright.errors import MaskwrightError, ShardError
from maskwright.shards.cache import locking_file
from maskwright.shards.folder import Mirror, check_json, open_mirror
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.shards.remote import is_remote
from maskwright.tokenizer.files import CONFIG, MAX_TOKENIZER_BYTES, TOKENIZER
from maskwright.tokenizer.tokenizer import Tokenizer


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
