"""Which examples are held out where nobody says: a function of their text."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from maskwright.finetune.config import Task
from maskwright.finetune.conll import TaggedSentence
from maskwright.finetune.examples import read_texts
from maskwright.finetune.labels import read_names
from maskwright.finetune.tables import LabelledRow

Row = TypeVar("Row", LabelledRow, TaggedSentence)


def split_examples(rows: Sequence[Row], task: Task, share: float) -> tuple[list[Row], list[Row]]:
    """Examples to train on and to score on; none with a label that no other one has is held out."""
    chosen = [is_held_out(row, share) for row in rows]
    names = [read_names(task, row) for row in rows]
    known = {
        name
        for held_out, found in zip(chosen, names, strict=True)
        if not held_out
        for name in found
    }
    chosen = [
        held_out and known.issuperset(found) for held_out, found in zip(chosen, names, strict=True)
    ]
    pairs = list(zip(rows, chosen, strict=True))
    return [row for row, held in pairs if not held], [row for row, held in pairs if held]


def is_held_out(row: LabelledRow | TaggedSentence, share: float) -> bool:
    """Whether an example is for validation: a function of its text, so copies stay together."""
    words: Iterable[Any] = row.words if isinstance(row, TaggedSentence) else read_texts(row)
    digest = hashlib.sha256("\x1f".join(words).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "little") < share * 2**64
