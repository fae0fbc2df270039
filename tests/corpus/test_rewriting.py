"""Text that is rewritten as it is read: markup, numbers, addresses and ids."""

from collections import Counter
from pathlib import Path

import pytest

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.rewriting import HTML_STRIPPED, strip_html
from maskwright.errors import ConfigError
from tests.corpus.helpers import read_all, write

MAIL = (
    "<html><head><title>x</title><style>p {}</style></head><body><p>Dear&nbsp;Ms M&uuml;ller,</p>"
    "<div>your <b>par</b>cel<br>is late.</div><script>track()</script></body></html>"
)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (MAIL, "Dear Ms Müller,\nyour parcel\nis late."),
        ("a < b and c > d", "a < b and c > d"),
        ("<table><tr><td>1</td><td>2</td></tr></table>", "1\n2"),
        ("<!-- hidden --><p>seen", "seen"),
        ("<script>x</p>y", ""),
        ("AT&amp;T &lt;3", "AT&T <3"),
        ("no markup", "no markup"),
    ],
)
def test_strip_html(html: str, text: str):
    assert strip_html(html) == text


def test_html_is_kept_unless_asked_for(tmp_path: Path):
    path = write(tmp_path / "x.csv", f'text\n"{MAIL}"\nplain\n')
    assert read_all(path) == [MAIL, "plain"]
    counts = Counter[str]()
    assert read_all(path, counts, html="strip") == [strip_html(MAIL), "plain"]
    assert counts[HTML_STRIPPED] == 1


def test_replace_applies_rules_in_order(tmp_path: Path):
    path = write(tmp_path / "x.log", "from 10.0.0.1 port 80 key=0xFF\nnothing\n")
    rules = [r"\d+\.\d+\.\d+\.\d+=<ip>", r"key=0x[0-9A-F]+=<key>", r"\d+=<num>"]
    counts = Counter[str]()
    assert read_all(path, counts, replace=rules) == ["from <ip> port <num> <key>", "nothing"]
    assert sum(counts.values()) == 3
    assert read_all(path, replace=[r"\d+=\1"])[0].startswith(r"from \1.\1")


@pytest.mark.parametrize("rule", ["no rule", "=<num>", "(=<num>", "x*=<num>"])
def test_wrong_rules_are_refused(rule: str):
    with pytest.raises(ConfigError, match="replace"):
        from_mapping(CorpusConfig, {"replace": [rule]})
