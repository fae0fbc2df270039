"""The layouts of SQuAD, and the scores of its script, of which the hard cases are written out."""

import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.squad import normalize_answer, read_questions, score_answer

CONTEXT = "Most land snails eat leaves, and slugs eat mushrooms."


def write_squad(path: Path, *asked: dict[str, Any], context: str = CONTEXT) -> Path:
    """Write a file in the layout of SQuAD 2.0."""
    paragraph = {"context": context, "qas": list(asked)}
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": [paragraph]}]}))
    return path


def ask(key: str, question: str, *answers: str, **more: Any) -> dict[str, Any]:
    found = [{"text": text, "answer_start": CONTEXT.index(text)} for text in answers]
    return {"id": key, "question": question, "answers": found, **more}


# What evaluate-v2.0.py gives for each answer and its references.
SCORES = [
    ("leaves", ["leaves"], 1, 1),
    ("The leaves.", ["leaves"], 1, 1),
    ("LEAVES", ["stems", "leaves"], 1, 1),
    ("green leaves", ["leaves"], 0, 2 / 3),
    ("leaves leaves", ["leaves"], 0, 2 / 3),
    ("a leaf", ["leaves"], 0, 0),
    ("", ["leaves"], 0, 0),
    ("", [], 1, 1),
    ("leaves", [], 0, 0),
    ("the", [], 1, 1),  # nothing is left of it
    ("the", ["the", "leaves"], 0, 0),  # a reference of which nothing is left does not count
    ("the", ["the"], 1, 1),
    ("3.5", ["35"], 1, 1),
    ("well-known", ["wellknown"], 1, 1),
    ("in  the\nyear 1066", ["year 1066"], 0, 2 * 2 / (3 + 2)),
    ("«leaves»", ["leaves"], 0, 0),  # only ASCII punctuation is removed
    ("another answer", ["other answer"], 0, 0.5),  # articles are whole words
]


@pytest.mark.parametrize(("found", "references", "exact", "f1"), SCORES)
def test_scores_are_those_of_the_script(
    found: str, references: list[str], exact: float, f1: float
) -> None:
    assert score_answer(found, references) == pytest.approx((exact, f1))


def test_articles_and_punctuation_do_not_count() -> None:
    assert normalize_answer("The  Theatre's an A-frame,  a\tbarn!") == "theatres aframe barn"


def test_questions_of_both_versions_are_read(tmp_path: Path) -> None:
    path = write_squad(
        tmp_path / "dev.json",
        ask("q1", "What do slugs eat?", "mushrooms", "eat mushrooms"),
        ask("q2", "What do cats eat?", "leaves", is_impossible=True),
    )
    first, second = read_questions(path)
    assert (first.key, first.texts) == ("q1", ["What do slugs eat?", CONTEXT])
    assert first.references == (("mushrooms", 43), ("eat mushrooms", 39))
    assert first.answers == ["mushrooms", "eat mushrooms"]
    assert second.answers == []


def test_questions_of_the_hub_are_read(tmp_path: Path) -> None:
    row = {"question": "Who?", "context": CONTEXT, "title": "snails"}
    rows = [
        {"id": "a", **row, "answers": {"text": ["slugs"], "answer_start": [33]}},
        {"id": "", **row, "answers": {"text": [], "answer_start": []}},
        {"id": 0, **row, "answers": {"text": [], "answer_start": []}},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    first, second, third = read_questions(path)
    assert third.key == "0"
    assert (first.key, first.references) == ("a", (("slugs", 33),))
    assert (second.key, second.references) == ("2", ())


@pytest.mark.parametrize(
    "answers",
    [
        "slugs",
        {"text": ["slugs"]},
        {"text": ["slugs"], "answer_start": []},
        {"text": 5, "answer_start": [0]},
    ],
)
def test_wrong_answers_of_a_row_are_named(tmp_path: Path, answers: Any) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "Who?", "context": CONTEXT, "answers": answers}))
    with pytest.raises(CorpusError, match=r"train.jsonl:1: answers = "):
        list(read_questions(path))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answers": [{"text": "leaf", "answer_start": 21}]}, "leaf is not at character 21"),
        ({"answers": [{"text": "leaves", "answer_start": -1}]}, "at character -1"),
        ({"answers": [{"text": "leaves"}]}, "not in the layout of SQuAD"),
        ({"question": " "}, "question =   must be a text"),
    ],
)
def test_a_wrong_question_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    asked = {"id": "q7", "question": "What?", **change}
    path = write_squad(tmp_path / "train.json", {"answers": [], **asked})
    with pytest.raises(CorpusError, match=expected):
        list(read_questions(path))


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    wrong = {"": "not JSON", '{"data"': "not JSON", "[1, 2]": "layout", '{"data": "x"}': "layout"}
    for content, expected in wrong.items():
        path.write_text(content)
        with pytest.raises(CorpusError, match=expected):
            list(read_questions(path))
    with pytest.raises(CorpusError, match="No such file"):
        list(read_questions(tmp_path / "none.json"))
    table = tmp_path / "train.csv"
    table.write_text("question,answer\nWho?,I\n")
    with pytest.raises(CorpusError, match="no column context"):
        list(read_questions(table))
