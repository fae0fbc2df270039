"""The figures of the README and of docs/reliability.md are those of the committed result files."""

from benchmarks.common import BEGIN, END
from benchmarks.readme_results import README, write_section
from benchmarks.reliability_table import PAGE, list_promises, write_table
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


def test_nothing_is_left_to_fill_in():
    texts = [README.read_text(encoding="utf-8")]
    texts += [str(recipe.facts) for recipe in list_recipes()]
    assert not any("RESULT" in text for text in texts)
