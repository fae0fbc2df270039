"""Who runs the tasks: the same folder, byte for byte, whoever does it."""

from functools import partial
from pathlib import Path

import pytest

from maskwright.errors import ConfigError
from maskwright.preparation import engines
from maskwright.preparation.config import ClusterConfig, EngineName, PrepareConfig
from maskwright.preparation.engines import choose_engine, run_locally


def test_the_default_is_this_machine() -> None:
    engine = choose_engine(PrepareConfig(workers=3))
    assert isinstance(engine, partial)
    assert (engine.func, engine.args) == (run_locally, (3,))


@pytest.mark.parametrize(
    ("engine", "missing", "extra"),
    [
        ("datatrove-local", "datatrove", "cluster"),
        ("datatrove-ray", "ray", "ray"),
        ("datatrove-slurm", "datatrove", "cluster"),
    ],
)
def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, engine: EngineName, missing: str, extra: str
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == missing else 1)
    config = PrepareConfig(engine=engine, cluster=ClusterConfig(partition="cpu"))
    match = rf"engine = {engine} needs the package {missing}, .*'maskwright\[{extra}\]'"
    with pytest.raises(ConfigError, match=match):
        choose_engine(config)


def test_a_machine_without_slurm_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    config = PrepareConfig(engine="datatrove-slurm", cluster=ClusterConfig(partition="cpu"))
    with pytest.raises(ConfigError, match="needs sbatch, squeue, scancel, which cannot be found"):
        choose_engine(config)
