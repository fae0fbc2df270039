"""Downloading models from the Hugging Face hub (extra `hub`): ``hf:NAME[@REVISION]``.

Configuration, tokenizer and safetensors weights are downloaded to the hub cache, never pickles or
code. Without a network a cached model is used.
"""

from pathlib import Path
from typing import Any

from maskwright.errors import InputError, ModelFolderError
from maskwright.extras import import_extra
from maskwright.tokenizer.files import SENTENCE_CONFIG

PREFIX = "hf:"
_DOWNLOADED = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "*.safetensors", "model.safetensors.index.json",
    "modules.json", "1_Pooling/config.json", SENTENCE_CONFIG,  # of sentence-transformers
)  # fmt: skip
_BELOW = "*/*.safetensors"  # subfolders hold other formats, and parts of larger models


def is_hub_name(name: str) -> bool:
    """Return True if `name` is that of a model on the hub, not of a folder."""
    return name.startswith(PREFIX)


def download_model(name: str) -> Path:
    """Return the folder in the hub's cache that holds the model ``hf:NAME[@REVISION]``.

    Raises:
        InputError: the hub has no such model or revision, access is denied, or no network.
        MissingPackageError: huggingface_hub is not installed.
        ModelFolderError: its weights are not in safetensors.
    """
    hub: Any = import_extra("huggingface_hub", "hub", name)
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    try:
        folder = hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(_DOWNLOADED),
            ignore_patterns=[_BELOW],
        )
    except Exception as error:  # errors of several libraries, which differ between releases
        raise InputError(f"{name}: {_explain(hub, error, repository, revision)}") from None
    if not any(Path(folder).glob("*.safetensors")):
        raise ModelFolderError(
            f"{name} holds no weights in safetensors; pickles (pytorch_model.bin) are never loaded,"
            f" because they can run code. Try {PREFIX}{repository}@refs/pr/1, where the hub's"
            " converter often puts them. If you trust the model, you can also load it with"
            " transformers and call save_pretrained."
        )
    return Path(folder)


def _explain(hub: Any, error: Exception, repository: str, revision: str) -> str:
    """Return a line with the cause of a failed download and its remedy."""
    kinds = hub.errors
    login = "log in (hf auth login)"
    if isinstance(error, kinds.GatedRepoError):
        page = f"https://huggingface.co/{repository}"
        return f"access to this model is restricted: accept its terms on {page} and {login}"
    if isinstance(error, kinds.RepositoryNotFoundError):
        return f"there is no such model on the hub; if it is private, {login}"
    if isinstance(error, kinds.RevisionNotFoundError):
        return f"the model has no revision {revision}"
    if isinstance(error, kinds.HFValidationError):
        return f"{repository!r} is not a model's name; write {PREFIX}OWNER/NAME"
    if isinstance(error, kinds.LocalEntryNotFoundError):
        return (
            "the hub does not answer, and the cache does not hold the whole model; download it"
            " on a machine with a network, and name its folder"
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"the model cannot be downloaded: {reason}"
