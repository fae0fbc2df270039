"""The README's figures are those of the committed result files."""

from benchmarks.readme_results import BEGIN, END, README, write_section
from maskwright.recipes import list_recipes


def test_the_results_section_is_what_the_files_say():
    text = README.read_text(encoding="utf-8")
    assert BEGIN + write_section() + END in text


def test_nothing_is_left_to_fill_in():
    texts = [README.read_text(encoding="utf-8")]
    texts += [str(recipe.facts) for recipe in list_recipes()]
    assert not any("RESULT" in text for text in texts)
