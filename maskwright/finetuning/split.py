"""Which examples are held out where nobody says: a function of their texts.

Examples that share a text are a group and stay on one side; a single text is its own group. N
examples.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from maskwright.finetuning.config import Task
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import read_texts
from maskwright.finetuning.labels import read_names
from maskwright.finetuning.tables import LabelledRow

Row = TypeVar("Row", LabelledRow, TaggedSentence)
Texts = Sequence[str]


def split_examples(rows: Sequence[Row], task: Task, share: float) -> tuple[list[Row], list[Row]]:
    """Examples to train on and to score on; none with a label that no other one has is held out."""
    groups, held_out = hold_out([_list_texts(row) for row in rows], share)
    names = [read_names(task, row) for row in rows]
    known = {
        name
        for group, found in zip(groups, names, strict=True)
        if group not in held_out
        for name in found
    }
    held_out -= {
        group for group, found in zip(groups, names, strict=True) if not known.issuperset(found)
    }
    return divide(rows, groups, held_out)


def split_pairs(
    rows: Sequence[LabelledRow], share: float
) -> tuple[list[LabelledRow], list[LabelledRow]]:
    """Pairs without labels to train on and to score on."""
    return divide(rows, *hold_out([read_texts(row) for row in rows], share))


def divide(
    rows: Sequence[Row], groups: Sequence[str], held_out: set[str]
) -> tuple[list[Row], list[Row]]:
    """The rows of all other groups, and those of the groups that are held out."""
    pairs = list(zip(rows, groups, strict=True))
    return (
        [row for row, group in pairs if group not in held_out],
        [row for row, group in pairs if group in held_out],
    )


def hold_out(texts: Sequence[Texts], share: float) -> tuple[list[str], set[str]]:
    """The group of each example, named by one of its texts, and the groups that are held out.

    Single texts are held out by their hash alone. So that groups of pairs, which may be large, give
    the share that was asked for, those with the lowest hashes are taken that come closest to it.
    Where shared texts connect nearly all pairs, that gives less than half of it; then the pairs
    with the same first text are a group, or if these are as large, the pairs of the same texts.
    """
    if all(len(each) == 1 for each in texts):
        groups = [text for (text,) in texts]
        return groups, {group for group in set(groups) if _hash(group) < share}
    groups, held_out, wanted = list[str](), set[str](), share * len(texts)
    for groups in _group(texts):
        held_out = _fill(Counter(groups), wanted)
        if sum(group in held_out for group in groups) >= wanted / 2:
            break
    return groups, held_out


def count_shared(train: Sequence[LabelledRow], valid: Sequence[LabelledRow]) -> int:
    """How many examples to score on have a text that one to train on has as well."""
    known = {text for row in train for text in read_texts(row)}
    return sum(not known.isdisjoint(read_texts(row)) for row in valid)


def find_connected(texts: Sequence[Texts]) -> list[str]:
    """Of each example the least text of all that it is connected with through shared texts."""
    parents: dict[str, str] = {}

    def find(text: str) -> str:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = parents[parent]
            text = parent
        return text

    for each in texts:
        roots = [find(text) for text in each]
        for root in roots:
            parents[root] = min(roots)
    return [find(each[0]) for each in texts]


def _group(texts: Sequence[Texts]) -> Iterator[list[str]]:
    """Groups from large to small."""
    yield find_connected(texts)
    yield [each[0] for each in texts]
    yield ["\x1f".join(sorted(each)) for each in texts]


def _fill(sizes: Counter[str], wanted: float) -> set[str]:
    """Groups by their hashes, each that brings their number of examples closer to `wanted`."""
    chosen, count = set[str](), 0
    for group in sorted(sizes, key=_hash):
        if count + sizes[group] / 2 <= wanted:
            chosen.add(group)
            count += sizes[group]
    return chosen


def _list_texts(row: LabelledRow | TaggedSentence) -> Texts:
    return ["\x1f".join(row.words)] if isinstance(row, TaggedSentence) else read_texts(row)


def _hash(text: str) -> float:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "little") / 2**64
