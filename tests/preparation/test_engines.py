"""The same shards, byte for byte, whoever makes them and whoever dies over it."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.errors import ConfigError
from maskwright.preparation import engines
from maskwright.preparation.cluster.config import ClusterConfig, EngineName
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import LocalEngine, choose_engine
from maskwright.preparation.folder import TASKS_NAME
from tests.preparation.cluster.helpers import prepare_and_kill
from tests.preparation.helpers import read_folder, write_corpus

SETTINGS = ["--shard_megabytes", "1", "--tokenizer.vocab_size", "256", "--workers", "2"]
MEGABYTES = 20  # enough that a busy machine has not done it all before a worker is killed
KILLED = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"no {package}"))
    for name, package in (("datatrove-local", "datatrove"), ("datatrove-ray", "ray"))
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "words.txt", MEGABYTES)


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("local") / "out"
    assert main(["prepare", str(corpus), "--out", str(out), *SETTINGS]) == 0
    return read_folder(out)


@pytest.mark.parametrize("name", KILLED)
def test_one_of_two_workers_is_killed(
    corpus: Path, expected: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    arguments = [str(corpus), "--out", str(out), *SETTINGS, "--engine", name]
    arguments += ["--cluster.tasks", "2", "--cluster.memory_gigabytes", "1"]
    words = "ray::RankWorker" if name == "datatrove-ray" else str(out / TASKS_NAME)
    lines, num_done = prepare_and_kill(arguments, words)
    assert 0 < num_done < MEGABYTES - 1
    assert any("they are handed out again" in line for line in lines) == (name != "datatrove-ray")
    assert read_folder(out) == expected


@pytest.mark.skipif(find_spec("datatrove") is None, reason="datatrove is not installed")
def test_another_engine_finds_what_is_prepared(
    corpus: Path, expected: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in expected.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    command = ["prepare", str(corpus), "--out", str(tmp_path), *SETTINGS]
    assert main([*command, "--engine", "datatrove-local"]) == 0
    assert "reused" in capsys.readouterr().out


def test_the_default_is_this_machine(tmp_path: Path) -> None:
    assert choose_engine(PrepareConfig(workers=3), tmp_path, print) == LocalEngine(3)


@pytest.mark.parametrize(
    ("engine", "missing", "extra"),
    [
        ("datatrove-local", "datatrove", "cluster"),
        ("datatrove-ray", "ray", "ray"),
        ("datatrove-slurm", "datatrove", "cluster"),
    ],
)
def test_a_missing_package_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: EngineName, missing: str, extra: str
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == missing else 1)
    config = PrepareConfig(engine=engine, cluster=ClusterConfig(partition="cpu"))
    match = rf"engine = {engine} needs the package {missing}, .*'maskwright\[{extra}\]'"
    with pytest.raises(ConfigError, match=match):
        choose_engine(config, tmp_path, print)


def test_a_machine_without_slurm_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    config = PrepareConfig(engine="datatrove-slurm", cluster=ClusterConfig(partition="cpu"))
    with pytest.raises(ConfigError, match="needs sbatch, squeue, scancel, which cannot be found"):
        choose_engine(config, tmp_path, print)
