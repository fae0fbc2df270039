"""How a table lies in its file: what separates its columns, whether it has a header, what is where.

A person's table is named ``text,label`` or ``review;sentiment`` as often as it has our names. What
can be told from its first rows is told; two columns that may be the same thing are an error.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from maskwright.errors import CorpusError

FIRST, SECOND, LABEL = "sentence1", "sentence2", "label"
# The usual names of two texts that belong together, of a single text, and of what is learned.
_PAIRS = (
    (FIRST, SECOND), ("text1", "text2"), ("text_1", "text_2"), ("text_a", "text_b"),
    ("sentence_a", "sentence_b"), ("sentence_1", "sentence_2"), ("question1", "question2"),
    ("premise", "hypothesis"), ("anchor", "positive"), ("question", "answer"),
    ("question", "sentence"), ("question", "passage"), ("query", "positive"), ("query", "passage"),
    ("query", "document"), ("title", "abstract"),
)  # fmt: skip
_TEXTS = (
    FIRST, "text", "texts", "sentence", "content", "body", "review", "comment", "message",
    "document", "tweet", "post", "utterance", "question", "query", "title", "headline",
    "description", "abstract",
)  # fmt: skip
_LABELS = (
    LABEL, "labels", "class", "category", "categories", "target", "gold_label", "gold", "topic",
    "topics", "sentiment", "intent", "emotion", "polarity", "score", "rating", "stars", "value",
    "tag", "tags", "y", "is_duplicate", "similarity",
)  # fmt: skip
_USUAL: Mapping[str, frozenset[str]] = {
    FIRST: frozenset([*_TEXTS, *(first for first, _ in _PAIRS)]),
    SECOND: frozenset(second for _, second in _PAIRS),
    LABEL: frozenset(_LABELS),
}
_LONGEST_NAME, _MOST_WORDS, _MANY_ROWS = 40, 4, 10


def find_delimiter(lines: Sequence[str], own: str) -> str:
    """Return what separates the columns of a table.

    Args:
        lines: the first ones of the file.
        own: what the file's ending says. Another one replaces it only if it cuts every line into as
            many columns and `own` does not; a comma, which text is full of, if it finds a usual
            name in the first line as well.
    """
    rows = cut(lines, own)
    if not rows or (len(rows[0]) > 1 and len({len(row) for row in rows}) == 1):
        return own
    for mark in ";\t,":
        found = cut(lines, mark) if mark != own else []
        widths = {len(row) for row in found}
        is_table = len(widths) == 1 and min(widths) > 1 and 2 * len(found) > len(lines)
        if is_table and (mark != "," or _names_anything(found[0])):
            return mark
    if len(rows[0]) > 1:
        return own
    others = (mark for mark in ";\t," if mark != own)
    return next((m for m in others if _names_anything(*cut(lines[:1], m))), own)


def _names_anything(row: Sequence[str] = ()) -> bool:
    names = {_normalise(name) for name in row}
    return len(row) > 1 and any(names & usual for usual in _USUAL.values())


def cut(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """Return the rows of some lines, without a last one whose quotation marks are open."""
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader([f"{line}\n" for line in lines], delimiter=delimiter, quoting=quoting)
    rows: list[list[str]] = []
    with suppress(csv.Error):  # reading all of the table finds it again, and names the line
        for row in reader:
            rows += [row] * bool(row)
    is_open = bool(rows) and rows[-1][-1].endswith("\n")
    return rows[:-1] if is_open else rows


def looks_like_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first row holds names: short, different, no numbers, in no other row.

    The first column may have no name, as the index of a data frame has none. In few rows a label
    may well occur once, so names of several words count for nothing there.
    """
    if not rows:
        return False
    first, others = rows[0], rows[1:]
    named = [name.strip() for name in first]
    is_indexed = len(named) > 1 and not named[0]
    most_words = _MOST_WORDS if len(others) >= _MANY_ROWS else 1
    if len(set(named)) < len(named) or not all(
        _is_name(name, most_words) for name in named[is_indexed:]
    ):
        return False
    return not any(
        named[place] == row[place].strip()
        for row in others
        for place in range(min(len(row), len(named)))
        if named[place]
    )


def _is_name(text: str, most_words: int) -> bool:
    try:
        float(text)
    except ValueError:
        return 0 < len(text) <= _LONGEST_NAME and len(text.split()) <= most_words
    return False


def has_usual_names(row: Sequence[str], places: Mapping[str, int]) -> bool:
    """Return True if a row holds a usual name at each place, so that it is no example."""
    return bool(places) and all(
        place < len(row) and _normalise(row[place]) in _USUAL.get(role, ())
        for role, place in places.items()
    )


def propose_positions(rows: Sequence[Sequence[str]], roles: Sequence[str]) -> str:
    """Return ``sentence1=1 label=0`` for a table without a header: long texts, repeated labels."""
    width = min(map(len, rows), default=0)
    columns = [[row[place] for row in rows] for place in range(width)]
    by_length = sorted(range(width), key=lambda place: -sum(map(len, columns[place])))
    texts = [role for role in roles if role != LABEL]
    found = dict(zip(texts, sorted(by_length[: len(texts)]), strict=False))
    rest = [place for place in range(width) if place not in found.values()]
    if LABEL in roles and rest:
        found[LABEL] = min(rest, key=lambda place: (len(set(columns[place])), place))
    return " ".join(f"{role}={place}" for role, place in found.items())


def find_roles(
    names: Sequence[str], roles: Sequence[str], given: Mapping[str, object], place: str
) -> dict[str, str]:
    """Return which column holds what, for roles that are not given.

    Args:
        names: of the table's columns.
        roles: those that are needed; ``sentence2`` is left out where a table has one text.
        given: roles with their columns.
        place: of the table, for messages.

    Returns:
        The names by role; a role without a usual name is called by its own, which may be missing.

    Raises:
        CorpusError: two columns may hold the same thing.
    """
    free = {_normalise(name): name for name in names if name not in given.values()}
    found: dict[str, str] = {}
    names_texts = FIRST in given or SECOND in given
    if not names_texts and SECOND in roles:
        pairs = [pair for pair in _PAIRS if free.keys() >= set(pair)]
        if pairs:
            found = {FIRST: free[pairs[0][0]], SECOND: free[pairs[0][1]]}
    for role, usual in ((FIRST, _TEXTS), (LABEL, _LABELS)):
        if role in roles and role not in given and role not in found:
            found[role] = _find_one(free, role, usual, place)
    return found


def _find_one(free: Mapping[str, str], role: str, usual: Sequence[str], place: str) -> str:
    known = [free[name] for name in usual if name in free]
    if role in free or not known:
        return free.get(role, role)
    if len(known) > 1:
        raise CorpusError(
            f"{place} has several columns that may be the {role}: {', '.join(known)}. "
            f"Say which it is: --columns {role}={known[0]}."
        )
    return known[0]


def _normalise(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")
