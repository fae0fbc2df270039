"""A server of the small run, for all tests of a module."""

import logging
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.serving.helpers import serve


@pytest.fixture(scope="module")
def folder(workplace: Path) -> Path:
    return workplace / "runs" / "small" / "model"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with serve(folder) as client:
        yield client


@pytest.fixture(autouse=True)
def _fresh_logs(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Undo what a server that runs to the end of all tests, in a thread, has set for its logs."""
    logs = [logging.getLogger(name) for name in ("maskwright.access", "maskwright.serving")]
    levels = [log.level for log in logs]
    for log in logs:
        monkeypatch.setattr(log, "handlers", [])
        monkeypatch.setattr(log, "propagate", True)
        log.setLevel(logging.NOTSET)
    yield
    for log, level in zip(logs, levels, strict=True):
        log.setLevel(level)
