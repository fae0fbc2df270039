"""Every way to vectors returns those of sentence-transformers, for all that a folder states."""

from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("onnxruntime")

from benchmarks.vectors import SETTINGS, TOLERANCE, measure


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_way_is_measured_against_the_library(setting: str, tmp_path: Path) -> None:
    found = dict(measure(setting, tmp_path, is_whole=setting == "all"))
    assert {"embed", "Embedder", "search", "evaluate", "serve"} < found.keys()
    assert {way: one for way, one in found.items() if not one <= TOLERANCE} == {}
