"""The validation split if no file is given: a function of the texts, independent of their order.

Examples that share a text, directly or through others, form a group, which is not split; this
covers mirrored pairs. scikit-learn's grouped splits depend on the order of examples. N examples.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import Row
from maskwright.finetuning.squad import Question
from maskwright.finetuning.table_files import TableRow

RowType = TypeVar("RowType", bound=Row)
Texts = Sequence[str]


def split_examples(
    rows: Sequence[RowType], labels: Sequence[Sequence[str]], share: float
) -> tuple[list[RowType], list[RowType]]:
    """Return training examples and validation examples.

    Args:
        labels: [N] the labels of each example. A group is not held out if no training example has
            one of its labels.
        share: the share of examples to hold out.
    """
    groups, held_out = hold_out([_list_texts(row) for row in rows], share)
    pairs = list(zip(groups, labels, strict=True))
    known = {name for group, names in pairs if group not in held_out for name in names}
    held_out -= {group for group, names in pairs if not known.issuperset(names)}
    return (
        [row for row, group in zip(rows, groups, strict=True) if group not in held_out],
        [row for row, group in zip(rows, groups, strict=True) if group in held_out],
    )


def hold_out(texts: Sequence[Texts], share: float) -> tuple[list[str], set[str]]:
    """Return the group of each example, named by one of its texts, and the groups held out.

    A single text is held out if its hash is low. Groups of pairs may be large, so groups are taken
    in the order of their hashes until `share` is reached. If shared texts connect nearly all pairs,
    this yields less than half of `share`; then pairs with the same first text form a group, or, if
    these groups are also too large, pairs of the same two texts.
    """
    if all(len(each) == 1 for each in texts):
        groups = [text for (text,) in texts]
        return groups, {group for group in set(groups) if _hash(group) < share}
    groups, held_out, target = list[str](), set[str](), share * len(texts)
    # From the largest groups to the smallest.
    groupings = (
        find_connected(texts),
        [each[0] for each in texts],
        ["\x1f".join(sorted(each)) for each in texts],
    )
    for groups in groupings:
        held_out = _choose_groups(Counter(groups), target)
        if sum(group in held_out for group in groups) >= target / 2:
            break
    return groups, held_out


def count_shared(train: Sequence[TableRow], valid: Sequence[TableRow]) -> int:
    """Return the number of validation examples that share a text with a training example."""
    known = {text for row in train for text in row.texts}
    return sum(not known.isdisjoint(row.texts) for row in valid)


def count_repeated(known: Sequence[Row], scored: Sequence[Row]) -> int:
    """Return the number of scored examples whose texts are those of a known example."""

    def spell(row: Row) -> tuple[str, ...]:
        return tuple(" ".join(text.split()) for text in _list_texts(row))

    seen = {spell(row) for row in known}
    return sum(spell(row) in seen for row in scored)


def find_connected(texts: Sequence[Texts]) -> list[str]:
    """Return the group of each example: the smallest text of its connected component.

    The union-find is our own, because scipy would be a new requirement of `--task embedding`.
    """
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


def _choose_groups(sizes: Counter[str], target: float) -> set[str]:
    """Return groups in the order of their hashes, each if it brings the sum closer to `target`."""
    chosen, count = set[str](), 0
    for group in sorted(sizes, key=_hash):
        if count + sizes[group] / 2 <= target:
            chosen.add(group)
            count += sizes[group]
    return chosen


def _list_texts(row: Row) -> Texts:
    if isinstance(row, Question):  # contexts are kept apart first
        return [row.context, row.question]
    return ["\x1f".join(row.words)] if isinstance(row, TaggedSentence) else row.texts


def _hash(text: str) -> float:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "little") / 2**64
