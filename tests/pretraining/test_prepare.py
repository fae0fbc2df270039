"""The settings of a preparation: those of a recipe, of a file, and of the command line."""

from pathlib import Path

import pytest

from maskwright.errors import UnknownKeyError
from maskwright.pretraining.prepare import resolve_preparation


def test_a_file_of_a_run_may_name_its_recipe(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "recipe: small\ntext: [pydocs]\nseed: 3\ncorpus:\n  valid_fraction: 0.1\n"
        "train:\n  max_steps: 5\n",
        encoding="utf-8",
    )
    config = resolve_preparation(None, file, {"workers": 2})
    assert config.tokenizer.vocab_size == 16384  # of the recipe
    assert config.corpus.valid_fraction == 0.1
    assert config.workers == 2


def test_a_recipe_gives_tokenizer_and_selection(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("recipe: small\ncorpus: {valid_fraction: 0.1}\n", encoding="utf-8")
    config = resolve_preparation("base", file, {"select": {"quality": False}})
    assert config.tokenizer.vocab_size == 32768  # of the recipe that is named, not of the file's
    assert config.corpus.valid_fraction == 0.1
    assert (config.select.near_duplicates, config.select.quality) == (0.8, False)


def test_a_typo_in_the_file_is_found(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("corpsu: {}\n", encoding="utf-8")
    with pytest.raises(UnknownKeyError, match=r"corpsu.*corpus"):
        resolve_preparation(None, file, {})
