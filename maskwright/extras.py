"""Packages that only some features need, imported when such a feature is first used."""

import importlib
import importlib.util
from types import ModuleType

from maskwright.errors import MissingPackageError


def import_extra(module: str, extra: str, needed_by: str) -> ModuleType:
    """Import `module`, which is installed by an extra of maskwright.

    Args:
        module: dotted name.
        extra: name of the extra, for the message.
        needed_by: the file or feature that needs the package, for the message.

    Raises:
        MissingPackageError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is installed but broken: its own message says more
        raise _missing(package, extra, needed_by) from None


def check_extra(package: str, extra: str, needed_by: str) -> None:
    """Raise MissingPackageError unless `package` is installed; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, extra, needed_by)


def _missing(package: str, extra: str, needed_by: str) -> MissingPackageError:
    return MissingPackageError(
        f"{needed_by} needs the package {package}, which is not installed."
        f" Run: pip install 'maskwright[{extra}]'"
    )
