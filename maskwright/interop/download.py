"""Models from the Hugging Face hub (extra `hub`): ``hf:FacebookAI/roberta-base@main``.

What comes is the configuration, the tokenizer and weights in safetensors, into the hub's own
cache: never a pickle, never code. Without a network the cache serves what it has.
"""

from pathlib import Path
from typing import Any

from maskwright.errors import InputError, ModelFolderError

PREFIX = "hf:"
_WANTED = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "*.safetensors",
    "model.safetensors.index.json",
)
_BELOW = "*/*"  # folders hold other formats, and parts of larger models


def is_hub_name(name: str) -> bool:
    """Whether this names a model on the hub and not a folder."""
    return name.startswith(PREFIX)


def download_model(name: str) -> Path:
    """The folder in the hub's cache that holds the model ``hf:NAME[@REVISION]``.

    Raises:
        InputError: no such name or revision, no right to it, no network, or `huggingface_hub` is
            not installed.
        ModelFolderError: its weights are not in safetensors.
    """
    hub = _import_hub(name)
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    try:
        folder = hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(_WANTED),
            ignore_patterns=[_BELOW],
        )
    except Exception as error:  # of several libraries, and in each release of others
        raise InputError(f"{name}: {_explain(hub, error, repository, revision)}") from None
    if not any(Path(folder).glob("*.safetensors")):
        raise ModelFolderError(
            f"{name} holds no weights in safetensors; pickles (pytorch_model.bin) are never loaded,"
            f" for reading one can run code. Try {PREFIX}{repository}@refs/pr/1, where the hub's"
            " converter often puts them, or convert it: load it with transformers where you trust"
            " it, and call save_pretrained."
        )
    return Path(folder)


def _import_hub(name: str) -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        raise InputError(
            f"{name} needs the package huggingface_hub, which is not installed. Run: pip install"
            " 'maskwright[hub]'"
        ) from None
    return huggingface_hub


def _explain(hub: Any, error: Exception, repository: str, revision: str) -> str:
    """What went wrong, and what helps."""
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
            "the hub gives no answer, and the model is not, or not whole, in the cache; download it"
            " where there is a network, and name its folder"
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"the model cannot be downloaded: {reason}"
