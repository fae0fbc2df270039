"""JSON lines: one object a line, its text under one key."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from maskwright.corpus.readers.fields import TextField
from maskwright.corpus.readers.unreadable import UnreadableError

BAD_LINE = "bad JSON line"


def read_jsonl(lines: Iterable[str], field: TextField, counts: Counter[str]) -> Iterator[str]:
    """The texts of all objects that have one; lines that are no JSON object are counted.

    Raises:
        UnreadableError: no line holds an object.
        CorpusError: no object has the field.
    """
    num_objects = 0
    first_bad = 0
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            # Not strict: a raw control character in a string is repaired by cleaning.
            record: object = json.loads(line, strict=False)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            counts[_find_reason(counts, field.source, number)] += 1
            first_bad = first_bad or number
            continue
        num_objects += 1
        mapping = cast(dict[str, Any], record)
        if (text := field.pick(mapping.get(field.name), mapping)) is not None:
            yield text
    if not num_objects:
        where = f", and line {first_bad} is none" if first_bad else ""
        raise UnreadableError(
            "not JSON lines",
            f"{field.source} holds no JSON object: one a line is expected{where}.",
        )
    field.check_found()


def _find_reason(counts: Counter[str], source: str, number: int) -> str:
    """Return the reason that names the first bad line of all sources, be it this one or another."""
    found = next((reason for reason in counts if reason.startswith(BAD_LINE)), None)
    return found or f"{BAD_LINE} (first {Path(source).name}:{number})"
