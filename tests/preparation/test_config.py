"""What a preparation and a cluster can be asked for."""

from typing import Any

import pytest

from maskwright.config import from_mapping
from maskwright.errors import ConfigError
from maskwright.preparation.config import ClusterConfig, PrepareConfig


@pytest.mark.parametrize(
    ("field", "value"), [("block_megabytes", 0), ("block_megabytes", 2000), ("workers", -1)]
)
def test_values_out_of_range(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"^{field} = {value}"):
        from_mapping(PrepareConfig, {field: value})


def test_time_in_seconds() -> None:
    assert ClusterConfig(time="1:02:03").seconds == 3723


def test_arguments_of_sbatch_by_name() -> None:
    cluster = ClusterConfig(sbatch=("account=nlp=1", "exclusive"))
    assert cluster.sbatch_arguments == {"account": "nlp=1", "exclusive": ""}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tasks", 0),
        ("tasks", 1001),
        ("cores", 0),
        ("memory_gigabytes", 0),
        ("time", "1 day"),
        ("time", "1:60:00"),
        ("sbatch", ("--account=x",)),
        ("sbatch", ("account=x\n#SBATCH --uid=0",)),
    ],
)
def test_values_of_a_cluster_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{field} = "):
        ClusterConfig(**{field: value})


def test_slurm_needs_a_partition() -> None:
    with pytest.raises(ConfigError, match=r"^cluster.partition = None is required by engine"):
        PrepareConfig(engine="datatrove-slurm")
    assert PrepareConfig(engine="datatrove-slurm", cluster=ClusterConfig(partition="cpu"))
