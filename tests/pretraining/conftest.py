from pathlib import Path

import pytest

from tests.workplace import write_corpus


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt", 100)
