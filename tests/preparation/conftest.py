import pytest

from maskwright.preparation import processes
from tests.forked import CONTEXT, ensure_server


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process need not import what they use, which takes longer than a stage."""
    ensure_server()  # it would inherit the signals that are blocked for workers
    monkeypatch.setattr(processes, "get_context", lambda _: CONTEXT)
