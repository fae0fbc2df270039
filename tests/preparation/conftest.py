from multiprocessing import forkserver

import pytest

from maskwright.preparation import engines
from tests.forked import CONTEXT


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process need not import what they use, which takes longer than a stage."""
    forkserver.ensure_running()  # it would inherit the signals that are blocked for workers
    monkeypatch.setattr(engines, "get_context", lambda _: CONTEXT)
