"""The figures of the README and of the documentation are those of the committed result files."""

from pathlib import Path

import pytest

from benchmarks import interchange
from benchmarks.common import BEGIN, END, require_result
from benchmarks.readme_results import README, write_section
from benchmarks.reliability_table import PAGE, list_promises, write_table
from benchmarks.twins import TOLERANCE
from maskwright.errors import ModelFolderError
from maskwright.model_folder.families import list_native
from maskwright.model_folder.folder import parse_config
from maskwright.recipes import list_recipes


def test_the_results_section_is_what_the_files_say():
    text = README.read_text(encoding="utf-8")
    assert BEGIN + write_section() + END in text


def test_the_table_of_promises_is_what_the_files_say():
    assert BEGIN + write_table() + END in PAGE.read_text(encoding="utf-8")


def test_the_tests_of_all_promises_exist():
    for promise in list_promises():
        for name in promise.tests.split(", "):
            assert (README.parent / name).exists(), name


def test_the_tables_of_families_are_what_files_and_code_say():
    section = interchange.write_section()
    assert BEGIN + section + END in interchange.PAGE.read_text(encoding="utf-8")
    result = require_result("interchange")
    assert [family["family"] for family in result["families"]] == [
        f.model_type for f in list_native()
    ]
    for family in result["families"]:
        assert max(family["differences"].values()) <= TOLERANCE
        assert family["differences"]["round trip"] == 0


def test_what_has_no_home_has_a_reason():
    for fields in interchange.HOMELESS.values():
        assert ", the nearest class of transformers, has no " in interchange.explain(fields)


@pytest.mark.parametrize("model_type", interchange.REFUSED)
def test_what_cannot_be_computed_is_refused(model_type: str):
    with pytest.raises(ModelFolderError, match=f"model_type = {model_type} is not supported"):
        parse_config({"model_type": model_type}, {}, Path("model"))


def test_nothing_is_left_to_fill_in():
    texts = [README.read_text(encoding="utf-8")]
    texts += [str(recipe.facts) for recipe in list_recipes()]
    assert not any("RESULT" in text for text in texts)
