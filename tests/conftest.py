"""Settings and fixtures of all tests.

Torch has one thread, in the processes that tests start, too: results do not depend on cores, and
threads that wait for one another take none of the time of other tests.
"""

import os
from collections.abc import Generator

import pytest
import torch
from hypothesis import settings

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


@pytest.fixture(scope="module")
def no_charts() -> Generator[None]:
    """Leave the charts of pages empty, which take longer than the rest of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("report.charts", "finetuning.report"):
            patch.setattr(f"maskwright.{module}.render", lambda *_: "<svg></svg>")
        yield
