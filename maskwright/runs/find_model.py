"""The model folder that an argument names: a folder, a run directory, or ``hf:NAME[@REVISION]``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.errors import ModelFolderError
from maskwright.files import read_json
from maskwright.objectives.registry import OBJECTIVES
from maskwright.runs.download_model import download_model, is_hub_name
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    MODEL_NAME,
    find_run,
    is_fine_tuning,
    load_run_config,
    suggest_run,
)

MODULES_NAME = "modules.json"
_MAX_MODULES_BYTES = 1 << 20
HELP = "a run directory, a model folder, or hf:NAME[@REVISION]"


def find_model_folder(argument: Path | str) -> Path:
    """Return the model folder itself, the one in a run directory, or a downloaded one.

    Raises:
        InputError: a model that cannot be downloaded.
        MissingPackageError: huggingface_hub is not installed.
        ModelFolderError: there is no such folder but a run of nearly this name, or the run has no
            model yet.
    """
    if is_hub_name(str(argument)):
        return download_model(str(argument))
    folder = Path(argument)
    if (folder / MODEL_NAME).is_dir():
        return folder / MODEL_NAME
    if (folder / MODULES_NAME).is_file():
        return _find_transformer(folder)
    if hint := suggest_run(folder):
        raise ModelFolderError(f"{folder} is not a folder{hint}")
    if is_fine_tuning(folder):
        raise ModelFolderError(
            f"{folder} is an unfinished run of fine-tuning: it has no model yet. "
            f"Continue it: maskwright finetune --resume {folder}"
        )
    if (folder / CONFIG_NAME).is_file():
        raise ModelFolderError(
            f"{folder} is an unfinished run: it has no model yet. "
            f"Continue it: maskwright pretrain --resume {folder}"
        )
    return folder


def _find_transformer(folder: Path) -> Path:
    """Return the transformer of a folder of sentence-transformers: its first module."""
    modules: Any = read_json(folder / MODULES_NAME, _MAX_MODULES_BYTES)
    try:
        path = Path(modules[0]["path"])
    except (LookupError, TypeError):
        return folder
    return folder if path.is_absolute() or ".." in path.parts else folder / path


def find_masked_model(argument: Path | str, report: Callable[[str], None]) -> Path:
    """Return the folder of the model that predicts masked tokens, which need not be ``model``.

    Raises:
        MaskwrightError: as `find_model_folder`.
    """
    folder, run = find_model_folder(argument), find_run(argument)
    beside = run and OBJECTIVES[load_run_config(run, {}).objective.name].masked_model
    if not run or not beside:
        return folder
    report(f"{run}: its {beside} is scored, because {MODEL_NAME}/ predicts no masked tokens")
    return run / beside
