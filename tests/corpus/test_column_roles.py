"""Which column is the text and which is the label."""

from collections.abc import Sequence
from typing import Any

import pytest

from maskwright.corpus.column_roles import LabelKind, infer_roles, name_roles
from maskwright.errors import InputError

ROLES = ("sentence1", "sentence2", "label")
NOTES = [f"The printer on floor {number} does not print." for number in range(30)]
LABELS = [("it", "billing", "sales")[number % 3] for number in range(30)]
NUMBERS = [f"{number**2 / 7:.2f}" for number in range(30)]
BOTH = {"sentence1": "sentence1", "label": "label"}


def infer(
    columns: dict[str, Sequence[Any]],
    kind: LabelKind = "class",
    found: dict[str, Any] | None = None,
    given: Sequence[str] = (),
) -> dict[str, str]:
    rows = [*zip(*columns.values(), strict=True)]
    return infer_roles([*columns], rows, BOTH if found is None else found, given, kind)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("class", LABELS),
        ("class", [number % 2 for number in range(30)]),
        ("class", ["", *LABELS[1:]]),
        ("classes", [f"{one}|urgent" if one == "it" else "" for one in LABELS]),
        ("classes", [[one, "urgent"] for one in LABELS]),
        ("number", NUMBERS),
        ("number", [number % 5 for number in range(30)]),
    ],
)
def test_one_text_and_one_label_are_found(kind: LabelKind, labels: list[Any]):
    expected = {"sentence1": "note", "label": "department"}
    assert infer({"note": NOTES, "department": labels}, kind) == expected
    assert infer({"department": labels, "note": NOTES}, kind) == expected
    counted = [*map(str, range(1, 31))]
    assert infer({"id": counted, "note": NOTES, "department": labels}, kind) == expected
    days = [f"2024-01-{number + 1:02} 12:00:00" for number in range(30)]
    assert infer({"day": days, "note": NOTES, "department": labels}, kind) == expected


@pytest.mark.parametrize(
    "notes",
    [
        [f"{number}番のプリンターが動きません。修理をお願いします" for number in range(30)],
        ["Why?", "No", *NOTES[2:]],
        [*NOTES[:27], *NOTES[:3]],
    ],
)
def test_texts_of_all_kinds_are_texts(notes: list[str]):
    assert infer({"note": notes, "department": LABELS}) == {
        "sentence1": "note",
        "label": "department",
    }


@pytest.mark.parametrize(
    "columns",
    [
        {"note": NOTES, "department": LABELS, "urgent": LABELS[::-1]},
        {"note": NOTES, "reply": NOTES[::-1], "department": LABELS},
        {"note": NOTES, "department": NOTES[::-1]},
        {"note": NOTES, "department": ["it"] * 30},
        {"note": NOTES, "department": [*map(str, range(30))]},
        {"note": LABELS, "department": LABELS},
        {"note": [f"{number:036x}" for number in range(30)], "department": LABELS},
        {"note": [number * 1e30 for number in range(30)], "department": LABELS},
        {"note": NOTES[:3] * 10, "department": LABELS},
        {"note": [], "department": []},
        {"note": NOTES},
    ],
)
def test_two_ways_or_none_are_no_way(columns: dict[str, Sequence[Any]]):
    assert infer(columns) == {}


def test_beside_a_known_column_only_the_last_one_is_found():
    found = {"sentence1": "text", "label": "label"}
    assert infer({"text": NOTES, "department": LABELS}, found=found) == {"label": "department"}
    assert infer({"text": NOTES, "right": LABELS, "count": [*range(30)]}, found=found) == {}
    found = {"sentence1": "sentence1", "label": "class"}
    assert infer({"note": NOTES, "class": LABELS}, found=found) == {"sentence1": "note"}
    assert infer({"note": LABELS, "class": LABELS}, found=found) == {}
    assert infer({"note": NOTES, "class": LABELS}, found=found, given=["sentence1"]) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"text": "note", "label": "x"}, {"sentence1": "note", "label": "x"}),
        ({"Class": "x", "sentence": "note"}, {"label": "x", "sentence1": "note"}),
        ({"premise": 0, "hypothesis": 1}, {"sentence1": 0, "sentence2": 1}),
        ({"question": "a", "sentence": "b"}, {"sentence1": "a", "sentence2": "b"}),
        ({"sentence1": "a", "text2": "b"}, {"sentence1": "a", "sentence2": "b"}),
    ],
)
def test_roles_have_their_usual_names(given: Any, expected: object):
    assert name_roles(given, ROLES, "classification") == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"word": "a"}, "--columns word=a: classification has no role word; roles are sentence1"),
        ({"text": "a", "sentence1": "b"}, "--columns sentence1=b: sentence1 = a already"),
        ({"label": "a", "class": "b"}, "--columns class=b: label = a already"),
    ],
)
def test_a_role_is_known_and_given_once(given: Any, message: str):
    with pytest.raises(InputError, match=message):
        name_roles(given, ROLES, "classification")
