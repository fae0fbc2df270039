"""A server of the small run, for all tests of a module."""

from collections.abc import Iterator
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
