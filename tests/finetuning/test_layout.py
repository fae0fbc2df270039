"""What people call their columns, and how their tables are written."""

from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.layout import find_delimiter, find_roles, looks_like_header
from maskwright.finetuning.tables import list_names, parse_columns, read_columns

ROLES = ("sentence1", "sentence2", "label")


def read(path: Path, columns: dict[str, str]) -> list[tuple[object, ...]]:
    return [tuple(row.values.values()) for row in read_columns(path, parse_columns(columns))]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("text,label", ["text", "label"]),
        ("sentence,label", ["sentence", "label"]),
        ("id,Review Text,Review,Sentiment", ["Review", "Sentiment"]),
        ("category,headline,label_text", ["headline", "category"]),
        ("Title,label,class", ["Title", "label"]),
        ("premise,hypothesis,gold_label", ["premise", "hypothesis", "gold_label"]),
        ("index,question,sentence,label", ["question", "sentence", "label"]),
        ("sentence1,sentence2,score", ["sentence1", "sentence2", "score"]),
        ("what,ever", ["sentence1", "label"]),  # which are missing, and an error names them
    ],
)
def test_usual_names_are_known(names: str, expected: list[str]) -> None:
    found = find_roles(names.split(","), ROLES, {}, "a.csv")
    assert list(found.values()) == expected
    assert list(found) == [role for role in ROLES if role != "sentence2" or len(expected) == 3]


def test_columns_that_are_given_are_left_alone() -> None:
    names = ["text", "title", "label", "topic"]
    assert find_roles(names, ROLES, {"sentence1": "title"}, "a.csv") == {"label": "label"}
    assert find_roles(names, ROLES, {"label": "text"}, "a.csv") == {"sentence1": "title"}
    with pytest.raises(CorpusError, match=r"a\.csv has several .* sentence1: text, title\. Say"):
        find_roles(names, ROLES, {}, "a.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text;label\nI came, I saw;1\nyes;0\n"),
        ("a.csv", 'text;label\n"I came; I saw";1\nyes, sir;0\n'),
        ("a.csv", "text\tlabel\nI came, I saw; and\t1\nyes, sir\t0\n"),
        ("a.tsv", "text;label\nI came, I saw;1\nyes;0\n"),
        ("a.tsv", "text,label\nI came,1\nyes,0\n"),
        ("a.csv", "\ufefftext;label\r\nI came, I saw;1\r\nyes, he said;0\r\n"),
    ],
)
def test_semicolons_and_tabs_are_found(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert list_names(tmp_path / name) == ["text", "label"]
    rows = read(tmp_path / name, {"sentence1": "text", "label": "label"})
    assert [label for _, label in rows] == ["1", "0"]
    assert str(rows[0][0]).startswith("I came")


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        (["text", "Hello; world", "a; b"], ","),  # one column
        (["Hello, world", "Yes, sir"], "\t"),
        (["id\ttext\tlabel", "1\tbroken, then", "off\t0"], "\t"),
        (["I came, I saw,1", "yes,0"], ","),  # a mistake, which reading names
        ([], ","),
    ],
)
def test_what_the_ending_says_stays_where_nothing_else_fits(lines: list[str], own: str) -> None:
    assert find_delimiter(lines, own) == own


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["text", "right"], ["The cat.", "yes"]], True),
        ([["", "text", "label"], ["0", "The cat.", "yes"]], True),
        ([["The cat.", "yes"], ["The dog.", "yes"]], False),
        ([["The cat.", "1"], ["The dog.", "0"]], False),
        ([["so good", "pos"], ["so bad", "neg"]], False),
        ([["Review text", "right"], *[["The cat.", "yes"]] * 10], True),
        ([["A text that is longer than a name", "b"], ["x", "c"]], False),
        ([], False),
    ],
)
def test_a_header_is_told_from_an_example(rows: list[list[str]], expected: bool) -> None:
    assert looks_like_header(rows) is expected


@pytest.mark.parametrize("rows", ["{text},{label}", "{label},{text}"])
def test_a_table_without_a_header_is_reported_without_quoting_it(rows: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    examples = [("my secret sits here", "spam"), ("and more of it", "ham")] * 3
    path.write_text("".join(rows.format(text=t, label=n) + "\n" for t, n in examples))
    columns = find_roles(list_names(path), ROLES, {}, "a.csv")
    with pytest.raises(CorpusError, match="seems to have no header") as caught:
        read(path, columns)
    message = str(caught.value)
    assert "secret" not in message
    assert "spam" not in message
    proposed = message.partition("--columns ")[2].split()
    found = read(path, dict(one.split("=") for one in proposed))
    assert sorted(set(found)) == sorted(set(examples))


def test_a_header_over_positions_is_no_example(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nyes,1\n")
    assert read(path, {"sentence1": "0", "label": "1"}) == [("yes", "1")]
    path.write_text("text,1\nyes,1\n")
    assert read(path, {"sentence1": "0", "label": "1"}) == [("text", "1"), ("yes", "1")]


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.csv", "text,label\nI came, I saw,1\n", "holds a comma into quotation marks"),
        ("a.csv", "text;label\nyes;0\nno;0\nI came; I saw;1\n", "holds a semicolon into quotation"),
        ("a.tsv", "text\tlabel\nI came\tI saw\t1\n", "Correct the line"),
    ],
)
def test_a_text_that_was_cut_is_an_error(
    name: str, content: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=rf"has 3 columns, but the first line has 2\. .*{remedy}"):
        read(tmp_path / name, {"sentence1": "text", "label": "label"})
    (tmp_path / name).write_text("text,label,\nyes,0,,\n")  # nothing is lost
    assert read(tmp_path / name, {"sentence1": "text", "label": "label"}) == [("yes", "0")]
