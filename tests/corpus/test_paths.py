from pathlib import Path

import pytest

from maskwright.corpus.paths import expand_home, show_name
from maskwright.errors import CorpusError


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~/x") == Path("/home/me/x")
    assert expand_home("a~b") == Path("a~b")
    with pytest.raises(CorpusError, match="~nobody-of-this-name/x: "):
        expand_home("~nobody-of-this-name/x")


def test_names_are_shown_as_unicode() -> None:
    assert show_name("größe.txt") == "größe.txt"
    assert show_name("a\udcff.txt") == "a\ufffd.txt"
