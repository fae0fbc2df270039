"""Packages that only some inputs need, imported when the first such input is read."""

import importlib
from types import ModuleType

from maskwright.errors import CorpusError


def import_extra(module: str, extra: str, needed_by: str) -> ModuleType:
    """Imports `module`, or says which extra of maskwright brings it.

    Raises:
        CorpusError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there, but broken: its own message says more
        raise CorpusError(
            f"{needed_by} needs the package {package}, which is not installed."
            f" Run: pip install 'maskwright[{extra}]'"
        ) from None
