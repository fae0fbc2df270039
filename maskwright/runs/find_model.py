"""Find a model folder by a folder, a run directory, or ``hf:NAME[@REVISION]``.

From the hub (extra `hub`), configuration, tokenizer and safetensors weights are downloaded to its
cache, never pickles or code. Without a network a cached model is used.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.errors import InputError, ModelFolderError
from maskwright.extras import import_extra
from maskwright.model_folder.sentence_modules import MODULES_NAME, SHARED_CONFIG, find_transformer
from maskwright.objectives.config import OBJECTIVES
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    MODEL_NAME,
    RUNS_NAME,
    find_run,
    is_fine_tuning,
    load_run_config,
    suggest_run,
)
from maskwright.tokenizer.files import SENTENCE_CONFIG

PREFIX = "hf:"
_DOWNLOADED = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "*.safetensors", "model.safetensors.index.json",
    MODULES_NAME, SHARED_CONFIG, "*_Pooling/config.json", SENTENCE_CONFIG,
)  # fmt: skip
_BELOW = "*/*.safetensors"  # subfolders hold other formats, and parts of larger models


def is_hub_name(name: str) -> bool:
    """Return True if `name` is that of a model on the hub, not of a folder."""
    return name.startswith(PREFIX)


def download_model(name: str) -> Path:
    """Return the folder in the hub's cache that holds the model ``hf:NAME[@REVISION]``.

    Raise InputError if it cannot be downloaded, ModelFolderError if it has no safetensors.
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
        raise InputError(f"{name}: {_explain(hub, error, repository)}") from None
    if not any(Path(folder).glob("*.safetensors")):
        raise ModelFolderError(
            f"{name} holds no weights in safetensors; pickles (pytorch_model.bin) are never loaded,"
            f" because they can run code. Try {PREFIX}{repository}@refs/pr/1, where the hub's"
            " converter often puts them. If you trust the model, you can also load it with"
            " transformers and call save_pretrained."
        )
    return Path(folder)


def _explain(hub: Any, error: Exception, repository: str) -> str:
    """Return a line with the cause of a failed download and its remedy."""
    kinds = hub.errors
    login = "log in (hf auth login)"
    if isinstance(error, kinds.GatedRepoError):
        page = f"https://huggingface.co/{repository}"
        return f"access to this model is restricted: accept its terms on {page} and {login}"
    if isinstance(error, kinds.RepositoryNotFoundError):
        return f"there is no such model on the hub; if it is private, {login}"
    if isinstance(error, kinds.RevisionNotFoundError | kinds.HFValidationError):
        return f"there is no such revision or name; write {PREFIX}OWNER/NAME[@REVISION]"
    if isinstance(error, kinds.LocalEntryNotFoundError):
        return (
            "the hub does not answer, and the cache does not hold the whole model; download it"
            " on a machine with a network, and name its folder"
        )
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"the model cannot be downloaded: {reason}"


HELP = "a run directory, a model folder, or hf:NAME[@REVISION]"


def find_model_folder(argument: Path | str) -> Path:
    """Return the model folder itself, the one in a run directory, or a downloaded one.

    Raise ModelFolderError if the folder does not exist, or the run has no model yet.
    """
    if is_hub_name(str(argument)):
        return download_model(str(argument))
    folder = Path(argument)
    if (folder / MODEL_NAME).is_dir():
        return folder / MODEL_NAME
    if (folder / MODULES_NAME).is_file():
        return find_transformer(folder)
    if not folder.exists():
        up, top = folder.parent, Path()
        is_name = up == top or not (up.parent != top or up.exists() or up.name == RUNS_NAME)
        hub = f". For a model of the Hugging Face hub, give {PREFIX}{folder}."
        raise ModelFolderError(
            f"{folder} is not a folder{suggest_run(folder) or (hub if is_name else '.')}"
        )
    is_tuning = is_fine_tuning(folder)
    if is_tuning or (folder / CONFIG_NAME).is_file():
        kind, command = (" of fine-tuning", "finetune") if is_tuning else ("", "pretrain")
        raise ModelFolderError(
            f"{folder} is an unfinished run{kind}: it has no model yet. "
            f"Continue it: maskwright {command} --resume {folder}"
        )
    return folder


def find_masked_model(argument: Path | str, report: Callable[[str], None]) -> Path:
    """Return the folder of the model that predicts masked tokens, which may not be ``model``.

    Raises:
        MaskwrightError: as `find_model_folder`.
    """
    folder, run = find_model_folder(argument), find_run(argument)
    beside = run and OBJECTIVES[load_run_config(run, {}).objective.name].masked_model
    if not run or not beside:
        return folder
    report(f"{run}: its {beside} is scored, because {MODEL_NAME}/ predicts no masked tokens")
    return run / beside
