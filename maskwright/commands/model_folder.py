"""The argument of commands that take a model: a folder, a run, or a name on the hub."""

from pathlib import Path

from maskwright.commands.run_folder import CONFIG_NAME, MODEL_NAME
from maskwright.errors import ModelFolderError
from maskwright.interop.download import download_model, is_hub_name

HELP = "a run directory, a model folder, or hf:NAME[@REVISION]"


def find_model_folder(argument: Path | str) -> Path:
    """The model folder itself, the one in a run directory, or a downloaded one.

    Raises:
        InputError: a model on the hub that cannot be had.
        ModelFolderError: a run that has no model yet.
    """
    if is_hub_name(str(argument)):
        return download_model(str(argument))
    folder = Path(argument)
    if (folder / MODEL_NAME).is_dir():
        return folder / MODEL_NAME
    if (folder / CONFIG_NAME).is_file():
        raise ModelFolderError(
            f"{folder} is a run that is not finished: it has no model yet. "
            f"Go on with maskwright pretrain --resume {folder}"
        )
    return folder
