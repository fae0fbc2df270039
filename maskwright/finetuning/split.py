"""The validation split if no file is given: a share of each label, independent of the order.

Examples that share a text, directly or through others, form a group, which is not split; this
covers mirrored pairs. Near copies of sequences count as shared texts (`link_near_copies`).
scikit-learn's grouped splits depend on the order of examples. N examples.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeVar

from maskwright.corpus.column_roles import AFTER
from maskwright.corpus.table_files import GROUP_MARK, TableRow
from maskwright.errors import CorpusError
from maskwright.finetuning.connected import Texts, find_connected, link_near_copies
from maskwright.finetuning.examples import Row

RowType = TypeVar("RowType", bound=Row)


def split_examples(
    rows: Sequence[RowType], labels: Sequence[Sequence[str]], share: float
) -> tuple[list[RowType], list[RowType]]:
    """Return training examples and a share of the examples of each label; `labels` are [N].

    Each label has a training example.
    """
    texts = link_near_copies([row.group_texts for row in rows])
    groups, held_out = hold_out(texts, labels, share)
    return (
        [row for row, group in zip(rows, groups, strict=True) if group not in held_out],
        [row for row, group in zip(rows, groups, strict=True) if group in held_out],
    )


def split_after(
    rows: Sequence[RowType], column: str, value: str
) -> tuple[list[RowType], list[RowType]]:
    """Return the examples before a value of a column, and those from it on.

    Values are compared as numbers if all are, else as text, which orders ISO dates.

    Raises:
        CorpusError: all examples are on one side.
    """
    found = [str(row.values[AFTER]) for row in rows if isinstance(row, TableRow)]
    try:
        late = [float(one) >= float(value) for one in found]
    except ValueError:
        late = [one >= value for one in found]
    before = [row for row, is_late in zip(rows, late, strict=True) if not is_late]
    after = [row for row, is_late in zip(rows, late, strict=True) if is_late]
    if not before or not after:
        extent = f"{min(found, default='none')} to {max(found, default='none')}"
        raise CorpusError(
            f"--valid-after {column}={value}: {len(before):,} examples are before and "
            f"{len(after):,} from then on; the column has {extent}. Choose a value between."
        )
    return before, after


def cut_folds(
    rows: Sequence[RowType], labels: Sequence[Sequence[str]], count: int
) -> list[list[int]]:
    """Return the positions of the examples of each fold, in which the labels have equal shares.

    An example whose label no other fold has is in none: it is always a training example.
    """
    texts = link_near_copies([row.group_texts for row in rows])
    groups, chosen = hold_out(texts, labels, 1 / count)
    left, folds = [*range(len(rows))], list[list[int]]()
    for others in range(count, 1, -1):
        if folds:
            parts = [groups[n] for n in left], [labels[n] for n in left]
            chosen = _choose_groups(*parts, 1 / others)
        folds.append([n for n in left if groups[n] in chosen])
        left = [n for n in left if groups[n] not in chosen]
    folds.append(left)
    total = Counter(name for each in labels for name in each)
    for number, fold in enumerate(folds):
        inside = Counter(name for n in fold for name in labels[n])
        folds[number] = [n for n in fold if all(total[name] > inside[name] for name in labels[n])]
    return folds


def hold_out(
    texts: Sequence[Texts], labels: Sequence[Sequence[str]], share: float
) -> tuple[list[str], set[str]]:
    """Return the group of each example, named by one of its texts, and the groups held out.

    If shared texts connect nearly all pairs, this yields less than half of `share`; then pairs with
    the same first text form a group, or, if these groups are also too large, pairs of the same two
    texts.
    """
    groups, held_out = list[str](), set[str]()
    # From the largest groups to the smallest.
    groupings = (
        find_connected(texts),
        [each[0] for each in texts],
        ["\x1f".join(sorted(each)) for each in texts],
    )
    for groups in groupings:
        held_out = _choose_groups(groups, labels, share)
        if sum(group in held_out for group in groups) >= share * len(texts) / 2:
            break
    return groups, held_out


def count_shared(train: Sequence[TableRow], valid: Sequence[TableRow]) -> int:
    """Return the number of validation examples that share a text with a training example."""
    known = {text for row in train for text in row.texts}
    return sum(not known.isdisjoint(row.texts) for row in valid)


def count_repeated(known: Sequence[Row], scored: Sequence[Row]) -> int:
    """Return the number of scored examples whose texts are those of a known example."""
    seen = {spell_texts(row) for row in known}
    return sum(spell_texts(row) in seen for row in scored)


def spell_texts(row: Row) -> tuple[str, ...]:
    """Return the texts of an example without its group; equal whatever blanks they have."""
    texts = (text for text in row.group_texts if not text.startswith(GROUP_MARK))
    return tuple(" ".join(text.split()) for text in texts)


def _choose_groups(
    groups: Sequence[str], labels: Sequence[Sequence[str]], share: float
) -> set[str]:
    """Return a share of the groups of each label; a group of several is decided by its rarest.

    Groups are taken in the order of their hashes, each if it brings the sum closer to the share. At
    least one group of a label is chosen if one is no larger than the share of all examples, and at
    least one is not chosen.
    """
    sizes, names = Counter(groups), defaultdict[str, set[str]](set)
    for group, found in zip(groups, labels, strict=True):
        names[group].update(found or {""})
    members = defaultdict[str, list[str]](list)
    for group in sorted(sizes, key=_hash):
        for name in names[group]:
            members[name].append(group)
    left = Counter({name: len(found) for name, found in members.items()})
    chosen, decided, most = set[str](), set[str](), max(share * len(groups), 1)

    def take(group: str, room: float) -> int:
        """Choose a group if half of it has room and each of its labels keeps another group."""
        if sizes[group] / 2 > room or any(left[name] == 1 for name in names[group]):
            return 0
        chosen.add(group)
        left.subtract(names[group])
        return sizes[group]

    for name in sorted(members, key=lambda name: (len(members[name]), name)):
        stratum = [group for group in members[name] if group not in decided]
        target, count = share * sum(sizes[group] for group in stratum), 0
        for group in stratum:
            count += take(group, target - count)
        if chosen.isdisjoint(members[name]):
            any(take(group, most) for group in members[name])
        decided.update(stratum)
    return chosen


def _hash(text: str) -> float:
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "little") / 2**64
