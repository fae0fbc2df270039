"""Near copies of sequences are on one side of a split, and prose is split as ever."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.table_files import TableRow
from maskwright.finetuning.connected import (
    describe_near_copies,
    find_connected,
    link_near_copies,
)
from maskwright.finetuning.split import cut_folds, split_examples

TEXT_PAIRS = st.lists(st.tuples(*[st.text("ABCDEFGH", min_size=1, max_size=2)] * 2), max_size=30)
ALPHABETS = {"proteins": "ACDEFGHIKLMNPQRSTVWY", "dna": "ACGT"}


def connect_slowly(pairs: list[tuple[str, str]]) -> list[str]:
    """Every pair takes the least text of all that it shares one with, until nothing changes."""
    found = [min(pair) for pair in pairs]
    for _ in pairs:
        found = [
            min(other for other, theirs in zip(found, pairs, strict=True) if {*pair} & {*theirs})
            for pair in pairs
        ]
    return found


@given(TEXT_PAIRS)
def test_groups_are_what_shared_texts_connect(pairs: list[tuple[str, str]]):
    assert find_connected(pairs) == connect_slowly(pairs)


def make_sequences(alphabet: str, num_copies: int = 2) -> list[str]:
    """Return 60 random sequences, a half of them with copies in which one letter is another."""
    random, found = Random(0), list[str]()
    for number in range(60):
        text = "".join(random.choices(alphabet, k=random.randint(100, 140)))
        found.append(text)
        for _ in range(num_copies * (number % 2)):
            place = random.randrange(len(text))
            others = [one for one in alphabet if one != text[place]]
            found.append(text[:place] + random.choice(others) + text[place + 1 :])
    random.shuffle(found)
    return found


def differ(one: str, other: str) -> int:
    """Return the number of positions where two sequences differ; their lengths are alike."""
    if len(one) != len(other):
        return len(one) + len(other)
    return sum(a != b for a, b in zip(one, other, strict=True))


def count_copies(known: list[TableRow], scored: list[TableRow]) -> int:
    return sum(any(differ(a.texts[0], b.texts[0]) <= 2 for b in known) for a in scored)


def make_rows(texts: list[str]) -> list[TableRow]:
    return [TableRow("", {"sentence1": text, "label": "ab"[n % 2]}) for n, text in enumerate(texts)]


def list_labels(rows: list[TableRow]) -> list[list[str]]:
    return [[str(row.values["label"])] for row in rows]


@pytest.mark.parametrize("kind", ALPHABETS)
def test_near_copies_are_on_one_side(kind: str):
    rows = make_rows(make_sequences(ALPHABETS[kind]))
    train, valid = split_examples(rows, list_labels(rows), 0.2)
    assert len(train) + len(valid) == len(rows) == 120
    assert len(valid) >= 20
    assert count_copies(train, valid) == 0
    for fold in cut_folds(rows, list_labels(rows), 3):
        inside = [rows[n] for n in fold]
        assert count_copies([row for n, row in enumerate(rows) if n not in fold], inside) == 0


@pytest.mark.parametrize("kind", ALPHABETS)
def test_link_near_copies_leaves_unrelated_sequences_alone(kind: str):
    texts = [[text] for text in make_sequences(ALPHABETS[kind], num_copies=0)]
    assert link_near_copies(texts) == texts


def test_link_near_copies_leaves_prose_alone():
    texts = [[f"the cat of number {n} sat on the mat with the old dog"] for n in range(30)]
    assert link_near_copies(texts) == texts


def test_describe_near_copies_counts_those_of_the_other_side():
    texts = make_sequences(ALPHABETS["proteins"], num_copies=1)
    rows = make_rows(texts)
    train, test = rows[:45], rows[45:]
    found = [*describe_near_copies([train, train[:1], test])]
    assert found[0].startswith("60 of 90 examples")
    assert f"{count_copies(train, test)} of 45 test" in found[1]
    assert len(found) == 2  # the validation example is equal, not a copy
    assert not [*describe_near_copies([make_rows(list("abc"))])]


def test_describe_near_copies_says_nothing_of_prose_that_shares_texts():
    both = [{"sentence1": f"The cat {n} eats.", "sentence2": "It eats."} for n in range(9)]
    pairs = [TableRow("", values) for values in both]
    assert not [*describe_near_copies([pairs[:6], pairs[6:]])]
