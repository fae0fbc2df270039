"""Settings and fixtures of all tests.

Torch has one thread, in the processes that tests start, too: results do not depend on cores, and
threads that wait for one another take none of the time of other tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from matplotlib.figure import Figure

from tests.command import cli as cli
from tests.graphs import traced_once as traced_once
from tests.workplace import workplace as workplace

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# Nothing that a test writes has to outlive a power cut, and waiting for the disk takes minutes in
# all. That every file is flushed is a test of `tests/test_files.py`, which replaces this again.
os.fsync = lambda fd: None

# Examples are the same in every run, and slow machines are no failures.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("default")

# Hundreds of runs end with a page of charts, which take half a second each: they are empty images
# where no test looks at them.
_DRAW = Figure.savefig


def _save_blank(self: Figure, fname: Any, **options: Any) -> None:
    (fname.write if hasattr(fname, "write") else Path(fname).write_text)("<svg></svg>")


Figure.savefig = _save_blank


@pytest.fixture
def drawn_charts() -> Iterator[None]:
    """Draw charts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _DRAW)
        yield
