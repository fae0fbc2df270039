"""The split is a function of texts and labels; no text is on both sides if that can be."""

from collections import Counter
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.table_files import TableRow
from maskwright.finetuning.connected import find_connected
from maskwright.finetuning.span_task import Question
from maskwright.finetuning.split import count_shared, hold_out, split_examples

TEXT_PAIRS = st.lists(st.tuples(*[st.text("ABCDEFGH", min_size=1, max_size=2)] * 2), max_size=30)


def split(rows: list[TableRow], share: float) -> tuple[list[TableRow], list[TableRow]]:
    return split_examples(rows, [[row.values["label"]] for row in rows], share)


def split_pairs(rows: list[TableRow], share: float) -> tuple[list[TableRow], list[TableRow]]:
    return split_examples(rows, [()] * len(rows), share)


def make_rows(pairs: list[tuple[str, str]], label: str = "one") -> list[TableRow]:
    return [
        TableRow("", {"sentence1": first, "sentence2": second, "label": label})
        for first, second in pairs
    ]


@given(TEXT_PAIRS, st.floats(0.05, 0.5), st.randoms())
def test_who_is_held_out_depends_on_no_order_and_no_side(
    pairs: list[tuple[str, str]], share: float, random: Random
):
    labels = [[first[0]] for first, _ in pairs]
    groups, held_out = hold_out(pairs, labels, share)
    order = random.sample(range(len(pairs)), len(pairs))
    again, same = hold_out(
        [pairs[number] for number in order], [labels[number] for number in order], share
    )
    assert same == held_out
    assert again == [groups[number] for number in order]
    assert find_connected([(b, a) for a, b in pairs]) == find_connected(pairs)


@given(st.integers(1, 6), st.integers(8, 40), st.floats(0.1, 0.4))
def test_partners_and_mirrored_copies_stay_with_their_anchor(
    num_partners: int, num_anchors: int, share: float
):
    pairs = [(f"a{a}", f"{a} {n}") for a, n in product(range(num_anchors), range(num_partners))]
    rows = make_rows([*pairs, *((b, a) for a, b in pairs)])
    train, valid = split_pairs(rows, share)
    assert count_shared(train, valid) == 0
    assert abs(len(valid) - share * len(rows)) <= num_partners  # half of a group
    train, valid = split(rows, share)
    assert count_shared(train, valid) == 0


def test_where_shared_texts_connect_everything_the_first_text_decides():
    """As hypotheses that stand beside many premises do."""
    pairs = [(f"premise {n}", hypothesis) for n in range(100) for hypothesis in ("yes", str(n))]
    train, valid = split_pairs(make_rows(pairs), 0.1)
    assert len(valid) == 20
    known = {row.values["sentence1"] for row in train}
    assert not known & {row.values["sentence1"] for row in valid}
    assert count_shared(train, valid) == 10


def test_contexts_of_repeated_questions_are_on_one_side():
    rows = [
        Question("", f"{text}-{asked}", f"What is {asked}?", f"The text {text}.", ())
        for text in range(20)
        for asked in range(5)
    ]
    kept, held_out = split_examples(rows, [()] * len(rows), 0.2)
    assert 0.1 < len(held_out) / len(rows) < 0.3
    assert not {row.context for row in kept} & {row.context for row in held_out}


def test_the_share_of_each_label_is_held_out():
    rows = [
        TableRow("", {"sentence1": f"{label} {number}", "label": label})
        for label, count in (("common", 219), ("rare", 81), ("few", 3), ("two", 2), ("one", 1))
        for number in range(count)
    ]
    train, valid = split(rows, 0.1)
    held_out = {"common": 22, "rare": 8, "few": 1, "two": 1}
    assert Counter(row.values["label"] for row in valid) == held_out
    assert len(train) == 306 - 32
    train, valid = split(rows, 0.9)  # of each label one is learned
    assert Counter(row.values["label"] for row in train) == {
        "common": 22, "rare": 8, "few": 1, "two": 1, "one": 1,
    }  # fmt: skip


def test_an_example_of_several_labels_belongs_to_its_rarest():
    texts = [[f"text {number}"] for number in range(400)]
    labels = [["O", "PER"] if n % 8 == 0 else ["O"] for n in range(400)]
    groups, held_out = hold_out(texts, labels, 0.1)
    rare = [group for group, names in zip(groups, labels, strict=True) if "PER" in names]
    assert (len(held_out), len(held_out.intersection(rare))) == (40, 5)


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=40, max_size=60))
def test_each_of_several_labels_is_on_both_sides(labels: list[set[str]]):
    texts, names = [[str(n)] for n in range(len(labels))], [sorted(each) for each in labels]
    groups, held_out = hold_out(texts, names, 0.2)
    counts = Counter(name for each in labels for name in each)
    chosen = Counter(
        name
        for group, each in zip(groups, labels, strict=True)
        if group in held_out
        for name in each
    )
    assert all(chosen[name] < count for name, count in counts.items())
    assert all(chosen[name] for name, count in counts.items() if count > 4)


def test_copies_of_a_text_are_on_one_side_and_more_text_moves_few():
    texts = [[str(n // 2)] for n in range(2000)]
    groups, held_out = hold_out(texts, [()] * 2000, 0.1)
    assert len(held_out) == 100
    assert groups == [text for (text,) in texts]
    fewer = hold_out(texts[:1800], [()] * 1800, 0.1)[1]
    assert len(held_out - fewer) <= 20  # the choice is that of the lowest hashes


def test_a_label_of_one_example_takes_its_group_to_be_learned():
    pairs = [(f"anchor {n // 2}", str(n)) for n in range(100)]
    rows = make_rows(pairs[::2], "common") + [
        row for n, pair in enumerate(pairs[1::2]) for row in make_rows([pair], f"rare {n % 25}")
    ]
    train, valid = split(rows, 0.3)
    assert valid
    assert count_shared(train, valid) == 0
    known = {row.values["label"] for row in train}
    assert known >= {row.values["label"] for row in valid}


def test_a_label_of_one_example_is_learned_and_not_held_out():
    rows = [TableRow("", {"sentence1": str(n), "label": str(n % 2)}) for n in range(100)]
    rare = [TableRow("", {"sentence1": f"rare {n}", "label": f"rare {n}"}) for n in range(30)]
    train, valid = split([*rows, *rare], 0.3)
    assert valid
    assert {"0", "1"} >= {row.values["label"] for row in valid}
    assert len(train) + len(valid) == 130
