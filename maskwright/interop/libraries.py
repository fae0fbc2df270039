"""Imports of optional libraries, without their warnings and log output."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from maskwright.extras import import_extra


def import_library(module: str, extra: str, needed_by: str) -> Any:
    """Import `module` without its warnings; raises as `import_extra` does."""
    with quiet():
        return import_extra(module, extra, needed_by)


@contextmanager
def quiet() -> Generator[None]:
    """Suppress warnings and log records below ERROR, because the results are checked anyway."""
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
    """Do the same as `quiet`, and suppress the progress bars of transformers."""
    bars = transformers.utils.logging
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        if had_bars:
            bars.enable_progress_bar()
