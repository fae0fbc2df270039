"""Small preparations on real clusters of two nodes on this machine, where they are installed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskwright.cli.main import main
from tests.preparation.clusters import find_missing, start_engine
from tests.preparation.helpers import read_folder, write_corpus

SETTINGS = ["--block_megabytes", "1", "--tokenizer.vocab_size", "256"]
CLUSTER = ["--cluster.memory_gigabytes", "1", "--cluster.partition", "cpu", "--cluster.tasks", "3"]
RUNS = [
    pytest.param(name, victim, marks=pytest.mark.skipif(bool(missing), reason=f"no {missing}"))
    for name, victim in (("datatrove-ray", "task"), ("datatrove-slurm", ""))
    for missing in [find_missing(name)]
]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a name that is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(("name", "victim"), RUNS)
def test_the_folder_is_that_of_one_process(
    name: str, victim: str, tmp_path: Path, scratch: Path
) -> None:
    arguments = [str(write_corpus(tmp_path / "words.txt", megabytes=2.5)), *SETTINGS]
    assert main(["prepare", *arguments, "--out", str(tmp_path / "one"), "--workers", "1"]) == 0
    with start_engine(name, scratch) as engine:
        codes = engine.prepare(tmp_path / "out", [*arguments, *CLUSTER], victim)
    assert codes == engine.codes[victim]
    assert read_folder(tmp_path / "out") == read_folder(tmp_path / "one")
