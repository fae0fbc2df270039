import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.spans import Entity, find_entities, marks_entities, score_spans


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O O", []),
        ("", []),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-PER I-PER B-PER I-PER", [("PER", 0, 2), ("PER", 2, 4)]),
        ("B-PER I-LOC I-LOC O", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("S-PER S-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER I-PER E-PER I-PER", [("PER", 0, 3), ("PER", 3, 4)]),
        ("O I-A-B", [("A-B", 1, 2)]),
        ("O PER O LOC LOC", [("PER", 1, 2), ("LOC", 3, 5)]),
        ("X-1 O", [("X-1", 0, 1)]),
        (
            "U-PER U-PER B-LOC L-LOC I-LOC",
            [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 4), ("LOC", 4, 5)],
        ),
        ("B-LOC M-LOC E-LOC", [("LOC", 0, 3)]),
    ],
)
def test_entities_of_every_scheme(tags: str, entities: list[tuple[str, int, int]]) -> None:
    assert find_entities(tags.split()) == [Entity(*entity) for entity in entities]


TAGS = st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in ("PER", "LOC"))])
SENTENCES = st.lists(st.integers(0, 6), min_size=1, max_size=5).flatmap(
    lambda lengths: st.tuples(
        *2 * [st.tuples(*(st.lists(TAGS, min_size=n, max_size=n) for n in lengths))]
    )
)


@given(SENTENCES)
def test_scores_are_seqeval_s(sentences: tuple[tuple[list[str], ...], tuple[list[str], ...]]):
    sequence_labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")
    true, found = ([tags for tags in side if tags] for side in sentences)
    for tags in (*true, *found):
        assert [tuple(entity) for entity in find_entities(tags)] == [
            (kind, start, last + 1) for kind, start, last in sequence_labeling.get_entities(tags)
        ]
    scores, each = score_spans(true, found)
    if true:
        arguments = {"average": "micro", "zero_division": 0}
        theirs = sequence_labeling.precision_recall_fscore_support(true, found, **arguments)
        assert (scores.precision, scores.recall, scores.f1) == pytest.approx(theirs[:3])
    assert sum(kind.num_right for kind in each.values()) == scores.num_right


def test_nothing_there_and_nothing_found_scores_zero() -> None:
    scores, each = score_spans([["O"]], [["O"]])
    assert (scores.precision, scores.recall, scores.f1, each) == (0.0, 0.0, 0.0, {})


def test_kinds_without_a_prefix_are_told_apart() -> None:
    scores, _ = score_spans([["O", "PER", "O"]], [["O", "LOC", "O"]])
    assert (scores.num_true, scores.num_found, scores.num_right) == (1, 1, 0)


def test_parts_of_speech_mark_no_entities() -> None:
    assert not marks_entities(["NOUN", "VERB", "X-Y"])
    assert marks_entities(["NOUN", "O"])
    assert marks_entities(["B-PER"])
