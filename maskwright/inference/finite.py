"""The guard against models that give no numbers, which any ranking would take for good answers."""

from torch import Tensor

from maskwright.errors import ModelFolderError


def check_finite(values: Tensor, what: str = "probabilities") -> None:
    """Lets pass values that are all finite.

    Raises:
        ModelFolderError: some are not.
    """
    if not values.isfinite().all():
        raise ModelFolderError(
            f"the model gives no finite {what}: its weights or its config.json are damaged."
        )
