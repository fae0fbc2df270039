"""Packages that only some features need, imported when such a feature is first used."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from maskwright.errors import MissingPackageError


def load(name: str) -> Any:
    """Import the module of ``module:name`` and return that member of it; registries list such names
    so that their entries are imported when they are used.
    """
    module, _, member = name.partition(":")
    return getattr(importlib.import_module(module), member)


def import_extra(module: str, extra: str, needed_by: str) -> ModuleType:
    """Import `module`, which is installed by an extra of maskwright.

    Args:
        module: dotted name.
        extra: name of the extra, for the message.
        needed_by: the file or feature that needs the package, for the message.

    Raises:
        MissingPackageError: the package is not installed.
    """
    check_extra(module.partition(".")[0], extra, needed_by)
    return importlib.import_module(module)  # of a broken package its own message says more


def check_extra(package: str, extra: str, needed_by: str) -> None:
    """Raise MissingPackageError unless `package` is installed; it is not imported."""
    if importlib.util.find_spec(package) is None:
        rule = f"needs the package {package}, which is not installed"
        raise MissingPackageError(f"{needed_by} {rule}. {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """Return ``Run: pip install …``; in a clone the command installs from the clone."""
    clone = Path(__file__).parents[1]
    what = f"-e '{clone}" if (clone / "pyproject.toml").is_file() else "'maskwright"
    return f"Run: pip install {what}[{extra}]'"
