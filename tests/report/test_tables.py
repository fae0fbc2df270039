import re

from hypothesis import given
from hypothesis import strategies as st

from maskwright.report.tables import ResultTable, escape_latex, render_tables

TABLE = ResultTable(
    "a_b & c", "(paired)", ("score", "95 %"), (("x_1|y", "<0.1"), ("<b>", "±2")), "p ≤ 0.05"
)


def test_write_markdown_has_a_line_for_each_row():
    lines = TABLE.write_markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert rows[1] == "| --- | ---: |"
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert "**a_b &amp; c** (paired)" in lines
    assert lines[-1] == "p ≤ 0.05"


def test_write_latex_escapes_and_has_a_line_for_each_row():
    text = TABLE.write_latex()
    assert r"x\_1|y & \textless{}0.1 \\" in text
    assert r"\caption{a\_b \& c (paired). p $\leq$ 0.05}" in text
    assert text.count(r" \\") == 3


@given(st.text(alphabet="\\{}$&#%_~^ab", max_size=20))
def test_escape_latex_leaves_no_special_character(text: str):
    shown = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]", "", escape_latex(text))
    assert not set(shown) - set("ab")


def test_render_tables_escapes_names():
    page = render_tables("<title>", [TABLE], [("chart", "<svg></svg>")], ["a < b"])
    assert "&lt;title&gt;" in page
    assert "&lt;b&gt;" in page
    assert "<svg></svg>" in page
    assert "a &lt; b" in page
