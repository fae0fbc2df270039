import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from maskwright.corpus.column_roles import find_roles, looks_like_header
from maskwright.corpus.table_files import (
    TableRow,
    find_delimiter,
    list_names,
    parse_columns,
    read_columns,
)
from maskwright.errors import CorpusError


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content, encoding="utf-8")
    return path


def read(path: Path, header: bool | None = None, **columns: str) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_columns(path, parse_columns(columns), header)]


ROWS = [{"text": 'He said "no".', "label": "1"}, {"text": "a, b", "label": "0"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'label\ttext\n1\tHe said "no".\n\n0\ta, b\n'),
        ("a.tsv.gz", 'label\ttext\r\n1\tHe said "no".\r\n0\ta, b\r\n'),
        ("a.csv", 'id,text,label\n7,"He said ""no"".",1\n8,"a, b",0\n'),
        ("a.jsonl", "\n".join(json.dumps({**row, "more": 1}) for row in ROWS)),
    ],
)
def test_columns_by_name(name: str, content: str, tmp_path: Path):
    assert read(write(tmp_path, name, content), text="text", label="label") == ROWS


def test_tabs_and_quotation_marks_in_a_csv_file(tmp_path: Path):
    path = write(tmp_path, "a.csv", '"text"\t"label"\n"a ""b""\t"\t1\nc\t0\n')
    assert list_names(path) == ["text", "label"]
    rows = [{"text": 'a "b"\t', "label": "1"}, {"text": "c", "label": "0"}]
    assert read(path, text="text", label="label") == rows


@pytest.mark.parametrize("value", ["1_5", "1e19", -1e19, 10**400, "nan", "inf", None])
def test_numbers_fit_in_float32(value: object):
    with pytest.raises(CorpusError, match="a:1: label = "):
        TableRow("a:1", {"label": value}).number("label")


def test_columns_by_position_have_no_header(tmp_path: Path):
    path = write(tmp_path, "a.tsv", "gj04\t1\t\tIt is.\ngj04\t0\t*\tIs it is.\n")
    rows = [{"text": "It is.", "label": "1"}, {"text": "Is it is.", "label": "0"}]
    assert read(path, text="3", label="1") == rows
    assert read(path, header=True, text="3", label="1") == rows[1:]


def test_parquet(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"s": ["x", "y"], "score": [0.5, 2.0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    expected = [{"text": "x", "label": 0.5}, {"text": "y", "label": 2.0}]
    assert read(tmp_path / "a.parquet", text="s", label="score") == expected
    assert read(tmp_path / "a.parquet", text="0", label="1") == expected
    packed = gzip.compress((tmp_path / "a.parquet").read_bytes())
    (tmp_path / "a.parquet.gz").write_bytes(packed)
    assert list_names(tmp_path / "a.parquet.gz") == ["s", "score"]
    assert read(tmp_path / "a.parquet.gz", text="s", label="score") == expected


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.tsv", "x\ty\n1\t2\n", {"text": "z"}, r"a\.tsv has no column z for text: it has x, y"),
        ("a.tsv", "x\ty\n1\n", {"text": "y"}, r"a\.tsv:2 has 1 column, but"),
        ("a.tsv", "1\t2\n", {"text": "2"}, r"a\.tsv has no column 2 .* positions 0 to 1"),
        ("a.csv", 'x\n"open\n', {"text": "x"}, r"a\.csv:2 cannot be read"),
        ("a.jsonl", '{"x": 1}\n[]\n', {"text": "x"}, r"a\.jsonl:2 is not a JSON object"),
        (
            "a.jsonl",
            '[{"x": 1}, {"x": 2}]\n',
            {"text": "x"},
            r"a\.jsonl:1 begins a JSON array.*jq -c",
        ),
        ("a.jsonl", '[\n  {"x": 1}\n]\n', {"text": "x"}, r"a\.jsonl:1 begins a JSON array.*jq -c"),
        ("a.jsonl", '{"x": 1}\n', {"text": "y"}, r"a\.jsonl:1 has no column y for text: it has x"),
        ("a.txt", "x", {"text": "y"}, r"a\.txt is not a table"),
        ("a.tsv", "", {"text": "y"}, "empty"),
    ],
)
def test_what_is_wrong_is_named(
    name: str, content: str, columns: dict[str, str], message: str, tmp_path: Path
):
    path = write(tmp_path, name, content)
    with pytest.raises(CorpusError, match=message):
        list(read_columns(path, parse_columns(columns)))


def test_rows_with_too_few_columns_are_counted_where_that_is_asked_for(tmp_path: Path):
    lines = ["id\ttext\tlabel", "1\tbroken", "off\t0", "2\twhole\t1", "3\twhole\t0\tmore"]
    path = write(tmp_path, "a.tsv", "\n".join(lines))
    columns, skipped = parse_columns({"text": "text", "label": "label"}), Counter[str]()
    rows = [dict(row.values) for row in read_columns(path, columns, skipped=skipped)]
    assert rows == [{"text": "whole", "label": "1"}, {"text": "whole", "label": "0"}]
    assert skipped == {str(path): 2}


@pytest.mark.parametrize("num_plain", [1, 5_000])  # one line of few, and one of many
def test_text_in_another_encoding_is_named_with_its_line(num_plain: int, tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_bytes(("text\n" + "plain\n" * num_plain + "schön\n").encode("cp1252"))
    with pytest.raises(CorpusError) as caught:
        read(path, text="text")
    message = str(caught.value)
    assert message.startswith(f"{path}:{num_plain + 2} ")
    assert "likely cp1252. Convert it" in message
    assert "--corpus" not in message  # finetune and predict have no such flag


def test_one_damaged_letter_is_an_error_too(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes("text\nschön\nGrüße\n".encode() + b"br\xfc\n")
    with pytest.raises(CorpusError, match=r"a\.csv:4 is mostly UTF-8"):
        read(tmp_path / "a.csv", text="text")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("mails.csv", b"PK\x03\x04" + bytes(26) + b"xl/workbook.xml", "xlsx"),
        ("mails.xlsx", b"PK\x03\x04" + bytes(26) + b"xl/workbook.xml", "xlsx"),
        ("mails.tsv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "xls"),
        (
            "mails.jsonl",
            b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
            "ods",
        ),
    ],
)
def test_a_spreadsheet_is_refused_by_name(name: str, content: bytes, kind: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    for attempt in (list_names, lambda path: read(path, text="text")):
        with pytest.raises(CorpusError, match=rf"{name} is .*{kind}.* CSV"):
            attempt(tmp_path / name)


ROLES = ("sentence1", "sentence2", "label")


def read_values(path: Path, columns: dict[str, str]) -> list[tuple[object, ...]]:
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
def test_usual_names_are_known(names: str, expected: list[str]):
    found = find_roles(names.split(","), ROLES, {}, "a.csv")
    assert list(found.values()) == expected
    assert list(found) == [role for role in ROLES if role != "sentence2" or len(expected) == 3]


def test_columns_that_are_given_are_left_alone():
    names = ["text", "title", "label", "topic"]
    assert find_roles(names, ROLES, {"sentence1": "title"}, "a.csv") == {"label": "label"}
    assert find_roles(names, ROLES, {"label": "text"}, "a.csv") == {"sentence1": "title"}
    with pytest.raises(CorpusError, match=r"a\.csv has several .* sentence1: text, title\. Choose"):
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
def test_semicolons_and_tabs_are_found(name: str, content: str, tmp_path: Path):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert list_names(tmp_path / name) == ["text", "label"]
    rows = read_values(tmp_path / name, {"sentence1": "text", "label": "label"})
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
def test_what_the_ending_says_stays_where_nothing_else_fits(lines: list[str], own: str):
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
def test_a_header_is_told_from_an_example(rows: list[list[str]], expected: bool):
    assert looks_like_header(rows) is expected


@pytest.mark.parametrize("rows", ["{text},{label}", "{label},{text}"])
def test_a_table_without_a_header_is_reported_without_quoting_it(rows: str, tmp_path: Path):
    path = tmp_path / "a.csv"
    examples = [("my secret sits here", "spam"), ("and more of it", "ham")] * 3
    path.write_text("".join(rows.format(text=t, label=n) + "\n" for t, n in examples))
    columns = find_roles(list_names(path), ROLES, {}, "a.csv")
    with pytest.raises(CorpusError, match=r"positions 0 to 1, and no header\. .*=") as caught:
        read_values(path, columns)
    message = str(caught.value)
    assert "secret" not in message
    assert "spam" not in message


def test_a_header_over_positions_is_no_example(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nyes,1\n")
    assert read_values(path, {"sentence1": "0", "label": "1"}) == [("yes", "1")]
    path.write_text("text,1\nyes,1\n")
    assert read_values(path, {"sentence1": "0", "label": "1"}) == [("text", "1"), ("yes", "1")]


def test_an_unusual_header_over_positions_is_no_example(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("mail,folder\n" + "where is it,order\nit is broken,complaint\n" * 6)
    columns = {"sentence1": "0", "label": "1"}
    with pytest.raises(CorpusError, match=r"a\.csv: its first line .*--header, or --no-header"):
        read_values(path, columns)
    assert len(read(path, header=True, sentence1="0", label="1")) == 12
    assert len(read(path, header=False, sentence1="0", label="1")) == 13
    assert len(read(path, sentence1="0")) == 13  # texts alone may be short and all different
    path.write_text("where is it,order\nit is broken,complaint\n" * 6)
    assert len(read_values(path, columns)) == 12


def test_a_column_for_each_label_is_named(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,sport,art,year\n" + "a game,1,0,7\na picture,0,1,8\n" * 6)
    with pytest.raises(CorpusError, match=r"no column for label.* 2 columns hold 0 and 1: .*a\|b"):
        read_values(path, find_roles(list_names(path), ROLES, {}, path))
    path.write_text("text,sport,year\n" + "a game,1,7\na picture,0,8\n" * 6)
    with pytest.raises(CorpusError, match=r"no column for label: it has text, sport, year\. Name"):
        read_values(path, find_roles(list_names(path), ROLES, {}, path))


@pytest.mark.parametrize(
    ("names", "role", "choice"),
    [
        ("Text,text,label", "sentence1", "Text"),
        ("text,Label,label", "label", "Label"),
        ("Text1,text1,text2,label", "sentence1", "Text1"),
        ("id,text,text,label", "sentence1", "1"),
    ],
)
def test_columns_that_differ_only_in_case_are_a_choice(names: str, role: str, choice: str):
    with pytest.raises(CorpusError, match=rf"a\.csv .* {role}: .*--columns {role}={choice}\.$"):
        find_roles(names.split(","), ROLES, {}, "a.csv")
    found = find_roles(names.split(","), ROLES, {role: choice}, "a.csv") if choice != "1" else {}
    assert role not in found


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.csv", "text,label\nI came, I saw,1\n", "Quote texts that contain a comma"),
        (
            "a.csv",
            "text;label\nyes;0\nno;0\nI came; I saw;1\n",
            "Quote texts that contain a semicolon",
        ),
        ("a.tsv", "text\tlabel\nI came\tI saw\t1\n", "Quote texts that contain a tab"),
    ],
)
def test_a_text_that_was_cut_is_an_error(name: str, content: str, remedy: str, tmp_path: Path):
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=rf"has 3 columns, .*has 2\. .*{remedy}"):
        read_values(tmp_path / name, {"sentence1": "text", "label": "label"})
    (tmp_path / name).write_text("text,label,\nyes,0,,\n")  # nothing is lost
    assert read_values(tmp_path / name, {"sentence1": "text", "label": "label"}) == [("yes", "0")]


SNAILS = '1\t"snail 1 eats\nleaf 1 today"\tby Ann\n'


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (SNAILS, ("1", "snail 1 eats\nleaf 1 today", "by Ann")),
        ('1\tby Ann\t"so\nlong"\n', ("1", "by Ann", "so\nlong")),  # the last cell
        ('"so\n\nlong"\t1\tAnn\n', ("so\n\nlong", "1", "Ann")),
        ('1\t"a\tb"\t"c"\n', ("1", "a\tb", "c")),
        ('1\t"He said ""no""."\tAnn\n', ("1", 'He said "no".', "Ann")),
        ('1\t"Yes."\t"Oh", he said\n', ("1", '"Yes."', '"Oh", he said')),  # as in GLUE
        ('1\tx\t"never closed\n', ("1", "x", '"never closed')),
    ],
)
def test_quoted_cells_of_tsv(row: str, expected: tuple[str, ...], tmp_path: Path):
    path = write(tmp_path, "a.tsv", "label\ttext\tnote\n" + row + '2\tnext\tnever opened"\n')
    columns = {"a": "label", "b": "text", "c": "note"}
    assert read_values(path, columns) == [expected, ("2", "next", 'never opened"')]


def test_a_quoted_first_row_says_that_all_are(tmp_path: Path):
    path = write(tmp_path, "a.tsv", '"text"\t"label"\n"Yes."\t"1"\n')
    assert read(path, text="text", label="label") == [{"text": "Yes.", "label": "1"}]


@pytest.mark.parametrize("row", ["1\tsnail\n", "1\tsnail\tAnn\tmore\n", '1\t"snail\n'])
def test_a_row_of_another_width_is_an_error(row: str, tmp_path: Path):
    path = write(tmp_path, "a.tsv", f"label\ttext\tnote\n0\tx\ty\n{row}")
    with pytest.raises(CorpusError, match=r"a\.tsv:3 has"):
        read(path, text="text", label="label")


@pytest.mark.parametrize("declared", ["sep=;", "SEP=;", '"sep=;"'])
def test_a_first_line_that_declares_the_separator_is_no_header(declared: str, tmp_path: Path):
    path = write(tmp_path, "a.csv", f"{declared}\ntext;label\na, b;1\n")
    assert list_names(path) == ["text", "label"]
    [row] = read_columns(path, {"text": "text", "label": "label"})
    assert (row.place, dict(row.values)) == (f"{path}:3", {"text": "a, b", "label": "1"})


@pytest.mark.parametrize("bad", [0, 1, 150, 299])
@pytest.mark.parametrize("field", ["text", "label"])
def test_a_field_that_one_record_lacks_is_named_as_such(bad: int, field: str, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    records = [{"text": f"text {n}", "label": str(n % 2)} for n in range(300)]
    del records[bad][field]
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    assert {*list_names(path)} == {"text", "label"}
    rule = f"a.jsonl:{bad + 1} has no field {field}, but 299 of 300 records have it. Correct"
    with pytest.raises(CorpusError, match=rule):
        list(read_columns(path, {"sentence1": "text", "label": "label"}))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("first", ["Export of May", "# from our shop"])
def test_a_title_above_the_header_is_named(mark: str, first: str, tmp_path: Path):
    lines = [first, mark.join(("text", "label")), *(f"text {n}{mark}{n % 2}" for n in range(20))]
    path = write(tmp_path, "a.csv", "\n".join(lines) + "\n")
    with pytest.raises(CorpusError, match=r"a\.csv:1 has 1 column, but 21 of the first 22 rows"):
        list(read_columns(path, {"sentence1": "text", "label": "label"}))


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("bad", [2, 11, 20])
def test_one_wrong_line_does_not_hide_the_separator(mark: str, bad: int, tmp_path: Path):
    lines = [mark.join(("Inhalt", "Art")), *(f"Ja, nein {n}{mark}{n % 2}" for n in range(20))]
    lines[bad] += f"{mark}more"
    path = write(tmp_path, "a.csv", "\n".join(lines) + "\n")
    with pytest.raises(CorpusError, match=rf"a\.csv:{bad + 1} has 3 columns, but the first row"):
        list(read_columns(path, {"sentence1": "Inhalt", "label": "Art"}))


TICKETS = [("Printer", "It is on fire.", "hw"), ("", "No title.", "sw"), ("No body", "", "sw")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("text", ["title+body", "0+1"])
def test_columns_are_joined_as_one_text(name: str, text: str, tmp_path: Path):
    names, path = ("title", "body", "queue"), tmp_path / name
    rows = [dict(zip(names, each, strict=True)) for each in TICKETS]
    if name == "a.parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if name == "a.tsv" else ",")
            writer.writerows([names, *TICKETS])
    if name == "a.jsonl" and text == "0+1":
        pytest.skip("the fields of JSON have names only")
    columns = {"sentence1": text, "label": "queue"}
    found = [row.texts for row in read_columns(path, columns)]
    assert found == [["Printer It is on fire."], ["No title."], ["No body"]]


def test_a_column_whose_name_has_a_plus_is_a_column(tmp_path: Path):
    path = write(tmp_path, "a.csv", "a+b,a,b\n1,2,3\n")
    assert [row.texts for row in read_columns(path, {"sentence1": "a+b"})] == [["1"]]
    with pytest.raises(CorpusError, match="has no column c"):
        list(read_columns(path, {"sentence1": "a+c"}))


def test_joining_is_suggested(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"or join them: text=title\+body"):
        find_roles(["id", "title", "body", "label"], ("sentence1", "label"), {}, "a.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_json_lines_of_another_name_are_recognized(name: str, tmp_path: Path):
    path = write(tmp_path, name, '{"text": "one, two", "label": 1}\n' * 5)
    with pytest.raises(CorpusError, match="holds JSON objects, a line each"):
        list(read_columns(path, {"sentence1": "text", "label": "label"}))


def test_bars_separate_columns_under_usual_names(tmp_path: Path):
    path = write(tmp_path, "a.csv", "text|label\nyes, or no|a\nno|b\n")
    found = [dict(row.values) for row in read_columns(path, {"text": "text", "label": "label"})]
    assert found == [{"text": "yes, or no", "label": "a"}, {"text": "no", "label": "b"}]
