"""Other people's libraries: imported when they are needed, and kept quiet while they work."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from maskwright.corpus import extras
from maskwright.errors import CorpusError, InputError


def import_library(module: str, extra: str, needed_by: str) -> Any:
    """Imports `module`, or says which extra of maskwright brings it.

    Raises:
        InputError: the package is not installed.
    """
    try:
        with quiet():
            return extras.import_extra(module, extra, needed_by)
    except CorpusError as error:
        raise InputError(str(error)) from None


def list_versions(*packages: str) -> dict[str, str]:
    """The version of each package that is installed, for a record of what was compared."""
    versions: dict[str, str] = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


@contextmanager
def quiet() -> Generator[None]:
    """No warnings and no log lines below errors: what matters of them is checked and said by us."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextmanager
def quiet_transformers(transformers: Any) -> Generator[None]:
    """The same, and no progress bars of transformers."""
    bars = transformers.utils.logging
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        if had_bars:
            bars.enable_progress_bar()
