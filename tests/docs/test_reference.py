"""The page of all settings is what the code says."""

from docs.tools.reference import PAGE, write_page


def test_the_page_of_the_configuration_is_current():
    assert PAGE.read_text(encoding="utf-8") == write_page(), "run python -m docs.tools reference"


def test_write_page_shows_what_differs_from_the_default():
    rows = {
        line.split("|")[1].strip(" `"): line for line in write_page().splitlines() if "|" in line
    }
    assert "| `0.15` |" in rows["masking.rate"]
    assert "`0.4`: auto, quickstart<br>`0.3`: tiny, small" in rows["masking.rate"]
    assert "`0.15`:" not in rows["masking.rate"]
    assert r"| `keep`\|strip |" in rows["corpus.html"]
    assert "| float |" in rows["masking.final_rate"]
    assert "-style" not in rows["model.preset"]
