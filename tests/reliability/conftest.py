from pathlib import Path

import pytest

from tests.reliability.small import make_data, make_run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data; to be copied before it is changed."""
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished, undisturbed run; to be copied before it is changed."""
    return make_run(tmp_path_factory.mktemp("runs"), data, "whole")
