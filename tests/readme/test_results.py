"""The figures of the README and of the documentation are those of the committed result files."""

import re

import pytest

from benchmarks.common import ROOT, find_result
from docs.tools.report import read_pages
from docs.tools.table_values import explain_homeless
from maskwright.model_folder.families import FAMILIES, list_native
from maskwright.recipes import list_recipes
from tests.twins import TOLERANCE

INTERCHANGE = read_pages()["docs/interchange.md"].blocks


def test_all_families_are_measured_and_equal():
    result = find_result("interchange")
    assert result is not None
    assert [family["family"] for family in result["families"]] == [
        f.model_type for f in list_native()
    ]
    for family in result["families"]:
        assert max(family["differences"].values()) <= TOLERANCE
        assert family["differences"]["round trip"] == 0


def test_what_has_no_home_has_a_reason():
    [block] = [block for block in INTERCHANGE if "arguments" in block]
    reasons = [record["reason"] for record in explain_homeless(**block["arguments"])]
    assert all(", the nearest class of transformers, has no " in reason for reason in reasons)


def test_what_cannot_be_computed_is_no_family():
    assert not FAMILIES.keys() & {one["model_type"] for one in INTERCHANGE[-1]["each"]}


def test_nothing_is_left_to_fill_in():
    texts = [(ROOT / "README.md").read_text(encoding="utf-8")]
    texts += [str(recipe.facts) for recipe in list_recipes()]
    assert not any("RESULT" in text for text in texts)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/get-started.md",
        "docs/choose.md",
        "Makefile",
        "maskwright/recipes/quickstart.yaml",
    ],
)
def test_quickstart_takes_as_long_everywhere(page: str):
    result = find_result("quickstart")
    assert result is not None
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"{result['work_seconds'] / 60:.1f} minutes" in text
    assert not re.search("(under|about|less than) (5|five) minutes|five to six", text)
