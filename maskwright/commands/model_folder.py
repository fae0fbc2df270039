"""The argument of commands that take a model: a folder, a run, or a name on the hub."""

from collections.abc import Callable
from pathlib import Path

from maskwright.commands.run_folder import (
    CONFIG_NAME,
    MODEL_NAME,
    is_fine_tuning,
    load_run_config,
    suggest_run,
)
from maskwright.errors import ModelFolderError
from maskwright.interop.download import download_model, is_hub_name

HELP = "a run directory, a model folder, or hf:NAME[@REVISION]"


def find_model_folder(argument: Path | str) -> Path:
    """The model folder itself, the one in a run directory, or a downloaded one.

    Raises:
        InputError: a model on the hub that cannot be had.
        ModelFolderError: no such folder, where a run is named nearly so; or a run that has no
            model yet.
    """
    if is_hub_name(str(argument)):
        return download_model(str(argument))
    folder = Path(argument)
    if (folder / MODEL_NAME).is_dir():
        return folder / MODEL_NAME
    if hint := suggest_run(folder):
        raise ModelFolderError(f"{folder} is not a folder{hint}")
    if is_fine_tuning(folder):
        raise ModelFolderError(
            f"{folder} is a run of fine-tuning that is not finished: it has no model yet. "
            f"Go on with maskwright finetune --resume {folder}"
        )
    if (folder / CONFIG_NAME).is_file():
        raise ModelFolderError(
            f"{folder} is a run that is not finished: it has no model yet. "
            f"Go on with maskwright pretrain --resume {folder}"
        )
    return folder


def find_masked_model(argument: Path | str, report: Callable[[str], None]) -> Path:
    """The folder of what guesses words: of replaced-token detection the generator, and says so.

    Raises:
        MaskwrightError: as `find_model_folder`.
    """
    folder, run = find_model_folder(argument), Path(argument)
    is_run = (run / CONFIG_NAME).is_file() and not is_fine_tuning(run)
    if not is_run or load_run_config(run, {}).objective.name != "rtd":
        return folder
    from maskwright.artifact.folder import GENERATOR  # with torch

    report(f"{run} has learned to detect replaced tokens: its generator is scored, {GENERATOR}/")
    return run / GENERATOR
