"""Vectors order pairs: tables with scores, the cosine of word counts."""

from pathlib import Path

import pytest

import maskwright
from maskwright.errors import MaskwrightError
from maskwright.evaluation.suite_vectors import compare_words, read_graded_pairs


def test_words_are_compared_by_their_cosine():
    assert compare_words("a b", "B A") == pytest.approx(1)
    assert compare_words("a b", "a c") == pytest.approx(0.5)
    assert compare_words("a", "b") == compare_words("", "b") == 0


def test_graded_pairs_are_read(tmp_path: Path):
    plain = tmp_path / "pairs.csv"
    plain.write_text('"A cat.","A dog.",2.5\n"One, two.","Three.",0\n')
    first, second, scores = read_graded_pairs(plain)
    assert (first, second) == (["A cat.", "One, two."], ["A dog.", "Three."])
    assert scores.tolist() == [2.5, 0]
    plain.write_text('score,sentence2,sentence1\n2.5,A dog.,A cat.\n0,Three.,"One, two."\n')
    again = read_graded_pairs(plain)
    assert (again[0], again[1], again[2].tolist()) == (first, second, [2.5, 0])
    plain.write_text('"A cat.","A dog.",1\n"One.","Three.",1\n')
    with pytest.raises(MaskwrightError, match="all scores are the same"):
        read_graded_pairs(plain)


def test_the_original_files_have_seven_columns_and_no_header(tmp_path: Path):
    original = tmp_path / "sts-dev.csv"
    rows = [
        'main-news\theadlines\t2015\t0001\t2.5\tA "cat.\tA dog.\tsource one\tsource two',
        "main-news\theadlines\t2015\t0002\t0\tOne, two.\tThree.",
    ]
    original.write_text("\n".join(rows) + "\n")
    first, second, scores = read_graded_pairs(original)
    assert (first, second) == (['A "cat.', "One, two."], ["A dog.", "Three."])
    assert scores.tolist() == [2.5, 0]
    original.write_text("\n".join([*rows, "main-news\theadlines"]) + "\n")
    with pytest.raises(MaskwrightError, match=r"sts-dev\.csv:3 has 2 columns"):
        read_graded_pairs(original)


def test_columns_of_other_names_are_not_guessed(tmp_path: Path):
    table = tmp_path / "pairs.csv"
    table.write_text("first,second,grade\nA cat.,A dog.,2.5\n")
    with pytest.raises(MaskwrightError, match="first, second, grade"):
        read_graded_pairs(table)
    table = tmp_path / "pairs.jsonl"
    table.write_text('{"sentence1": "A cat.", "sentence2": "A dog."}\n')
    with pytest.raises(MaskwrightError, match="it has sentence1, sentence2"):
        read_graded_pairs(table)


def test_a_model_is_scored(workplace: Path, tmp_path: Path):
    model = workplace / "runs" / "small" / "model"
    table = tmp_path / "pairs.tsv"
    rows = [
        (f"The {a} cat", f"The {b} cat", f"{float(a == b)}")
        for a in ("old", "small", "young")
        for b in ("old", "small")
    ]
    table.write_text("\n".join(map("\t".join, [("sentence1", "sentence2", "score"), *rows])))
    found = maskwright.evaluate(model, suite="sts", data=table)
    assert found["suites"][0]["settings"]["pooling"] == "mean"
    [score] = found["suites"][0]["scores"]
    by_cls = maskwright.evaluate(model, suite="sts", data=table, pooling="cls")["suites"][0]
    assert by_cls["settings"]["pooling"] == "cls"
    assert score["value"] is not None
    assert score["value"] > 0.5
    assert score["baseline"] == pytest.approx(1, abs=0.2)
