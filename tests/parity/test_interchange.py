"""The benchmark behind docs/interchange.md, on one family: load, train on, save, and back."""

from pathlib import Path

from benchmarks.interchange import WAYS, Workshop, measure
from tests.twins import TOLERANCE


def test_a_model_is_read_trained_and_read_by_transformers_again(tmp_path: Path) -> None:
    workshop = Workshop.open(tmp_path)
    differences = measure("xlm-roberta", workshop, tmp_path / "models")
    assert set(differences) == set(WAYS)
    assert max(differences.values()) <= TOLERANCE
    assert differences["round trip"] == 0
