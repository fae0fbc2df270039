"""JSON lines: one object a line, its text under one key."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, cast

from maskwright.corpus.readers.fields import TextField
from maskwright.corpus.readers.unreadable import UnreadableError


def read_jsonl(lines: Iterable[str], field: TextField, counts: Counter[str]) -> Iterator[str]:
    """The texts of all objects that have one; lines that are no JSON object are counted.

    Raises:
        UnreadableError: no line holds an object.
        CorpusError: no object has the field.
    """
    num_objects = 0
    for line in lines:
        if not line or line.isspace():
            continue
        try:
            # Not strict: a raw control character in a string is repaired by cleaning.
            record: object = json.loads(line, strict=False)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            counts["bad JSON line"] += 1
            continue
        num_objects += 1
        mapping = cast(dict[str, Any], record)
        if (text := field.pick(mapping.get(field.name), mapping)) is not None:
            yield text
    if not num_objects:
        raise UnreadableError(
            "not JSON lines", f"{field.source} holds no JSON object: one a line is expected."
        )
    field.check_found()
