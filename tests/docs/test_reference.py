"""The page of all settings is what the code says."""

from docs.tools.reference import PAGE, write_page


def test_the_page_of_the_configuration_is_current():
    assert PAGE.read_text(encoding="utf-8") == write_page(), "run python -m docs.tools reference"
