"""The roles of a table's columns: by their usual names or their content, or as the user says.

Content decides only where it leaves no choice: one column of long, distinct texts, and one of few
labels.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from maskwright.errors import CorpusError, InputError

Column = str | int  # a name, or a position from 0
LabelKind = Literal["class", "classes", "number"]
FIRST, SECOND, LABEL = "sentence1", "sentence2", "label"
NEGATIVE, SCORE = "negative", "score"  # of embeddings and rankings
GROUP, AFTER = "group", "after"  # of the training file: what splits it
WORD, TAG, SENTENCE = "word", "tag", "sentence"  # of tagged words
TEXT_ROLES = (FIRST, SECOND)
# The usual column names of text pairs, of single texts, and of labels.
PAIRS = (
    (FIRST, SECOND), ("text1", "text2"), ("text_1", "text_2"), ("text_a", "text_b"),
    ("sentence_a", "sentence_b"), ("sentence_1", "sentence_2"), ("question1", "question2"),
    ("premise", "hypothesis"), ("anchor", "positive"), ("question", "answer"),
    ("question", "sentence"), ("question", "passage"), ("question", "context"),
    ("query", "positive"), ("query", "passage"), ("query", "document"), ("title", "abstract"),
)  # fmt: skip
TEXTS = (
    FIRST, "text", "texts", "sentence", "content", "body", "review", "comment", "message",
    "document", "tweet", "post", "utterance", "question", "query", "title", "headline",
    "description", "abstract",
)  # fmt: skip
LABELS = (
    LABEL, "labels", "class", "category", "categories", "target", "gold_label", "gold", "topic",
    "topics", "sentiment", "intent", "emotion", "polarity", "score", "rating", "stars", "value",
    "tag", "tags", "y", "is_duplicate", "similarity",
)  # fmt: skip
# Of tables of words, the best first: entities before parts of speech.
WORDS = ("word", "words", "token", "tokens", "form", "forms")
TAGS = (
    "tag", "tags", "ner_tag", "ner_tags", "ner", "iob", "bio", "iob_tag", "bio_tag", "entity",
    "entities", "label", "labels", "pos_tag", "pos_tags", "pos", "upos", "xpos",
)  # fmt: skip
SENTENCES = (
    "sentence_#", "sentence_id", "sentence_idx", "sentence_number", "sentence", "sent_id", "sent",
    "sid",
)  # fmt: skip
USUAL: Mapping[str, frozenset[str]] = {
    FIRST: frozenset([*TEXTS, *(first for first, _ in PAIRS)]),
    SECOND: frozenset(second for _, second in PAIRS),
    LABEL: frozenset(LABELS),
    WORD: frozenset(WORDS),
    TAG: frozenset(TAGS),
    SENTENCE: frozenset(SENTENCES),
}
USUAL_MORE = {NEGATIVE: ("negative", "hard_negative"), SCORE: ("score", "similarity")}
_MAX_NAME, _MAX_NAME_WORDS, _MIN_ROWS = 40, 4, 10  # of a header, and for names of words
_MIN_LENGTH = 15  # characters of a text, on average
_MIN_DISTINCT_TEXTS, _MAX_DISTINCT_LABELS = 0.8, 0.5  # shares of the rows


def normalize_name(name: str) -> str:
    """Return a column name as the usual names are written."""
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def find_usual(role: str, names: Sequence[str]) -> str | None:
    """Return the first column with a usual name of a role of `USUAL_MORE`; None if none has one."""
    return next((name for name in names if normalize_name(name) in USUAL_MORE[role]), None)


def name_roles(columns: Mapping[str, Column], roles: Sequence[str], what: str) -> dict[str, Column]:
    """Return columns by role, which may be given by its usual names, such as ``text``.

    Raise InputError if `what` has no such role, or a role is given twice.
    """
    found: dict[str, Column] = {}
    for given, column in columns.items():
        usual = [role for role in roles if normalize_name(given) in USUAL.get(role, ())]
        free = [role for role in usual if role not in found]
        meant = [given] if given in roles else free or usual
        known = f"roles are {', '.join(roles)}" if roles else "remove the flag"
        if not meant:
            raise InputError(f"--columns {given}={column}: {what} has no role {given}; {known}")
        if meant[0] in found:
            rule = f"{meant[0]} = {found[meant[0]]} already"
            raise InputError(f"--columns {given}={column}: {rule}. Give it once.")
        found[meant[0]] = column
    return found


def infer_roles(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    found: Mapping[str, Column],
    given: Collection[str],
    kind: LabelKind,
) -> dict[str, str]:
    """Return the text and the label of a table by their content, if there is no other choice.

    If one of the two is known, the other must be the only column left. Columns that were `found`
    and that the table lacks are inferred, unless they are `given`.
    """
    missing = [role for role in (FIRST, LABEL) if role in found and found[role] not in names]
    if not {*given}.isdisjoint(missing):
        return {}
    free = [number for number, name in enumerate(names) if name not in found.values()]
    values = {number: [row[number] for row in rows if number < len(row)] for number in free}
    texts = [number for number in free if _are_texts(values[number])]
    labels = [number for number in free if number not in texts and _are(kind, values[number])]
    chosen = {FIRST: texts, LABEL: labels}
    is_clear = len(missing) == 2 or len(free) == 1
    if not is_clear or any(len(chosen[role]) != 1 for role in missing):
        return {}
    return {role: names[chosen[role][0]] for role in missing}


def _are_texts(values: Sequence[Any]) -> bool:
    """Return True for long texts of several words, most of them distinct."""
    texts = [one.strip() for one in values if isinstance(one, str) and one.strip()]
    has_words = sum(" " in text or not text.isascii() for text in texts) > len(texts) / 2
    letters = sum(character.isalpha() for text in texts for character in text)
    length = sum(map(len, texts))
    is_long = length >= _MIN_LENGTH * len(texts) and letters > length / 2
    return has_words and is_long and len({*texts}) >= _MIN_DISTINCT_TEXTS * len(values)


def _are(kind: LabelKind, values: Sequence[Any]) -> bool:
    """Return True for few labels that recur, or for numbers that do not count the rows."""
    if kind == "number":
        numbers = [_to_number(one) for one in values]
        known = sorted(one for one in numbers if one is not None)
        counts = [known[0] + step for step in range(len(known))] if known else []
        return len(known) == len(values) and len({*known}) > 1 and known != counts
    pieces = [one for value in values for one in (_split(value) if kind == "classes" else [value])]
    names = {str(one).strip() for one in pieces} - {""}
    return (1 if kind == "classes" else 2) <= len(names) <= _MAX_DISTINCT_LABELS * len(values)


def _split(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast(list[Any], value)
    return re.split(r"[|,]", str(value).strip("[]"))


def _to_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def find_roles(
    names: Sequence[str], roles: Sequence[str], given: Mapping[str, object], table: Path | str
) -> dict[str, str]:
    """Return the column of each role that is not given, inferred from the usual names.

    A role without a usual name maps to itself, which the table may lack; ``sentence2`` is omitted
    if the table has one text. Raise CorpusError if two columns may have the same role.
    """
    free: dict[str, list[str]] = {}
    for name in names:
        if name not in given.values():
            free.setdefault(normalize_name(name), []).append(name)
    found: dict[str, list[str]] = {}
    pairs = (pair for pair in PAIRS if free.keys() >= {*pair})
    if SECOND in roles and given.keys().isdisjoint(TEXT_ROLES) and (pair := next(pairs, None)):
        found = {FIRST: free[pair[0]], SECOND: free[pair[1]]}
    for role, usual in ((FIRST, TEXTS), (LABEL, LABELS)):
        if role in roles and role not in given and role not in found:
            found[role] = free.get(role) or [one for name in usual for one in free.get(name, ())]
    for role, known in found.items():
        if len(known) > 1:
            is_repeated = names.count(known[0]) > 1
            choice = names.index(known[0]) if is_repeated else known[0]
            rule = f"{table} has several columns that may be the {role}: {', '.join(known)}"
            hint = f"Choose one: --columns {role}={choice}"
            if role == FIRST and len({*map(normalize_name, known)}) > 1:
                joined = "+".join(name for name in names if name in known)
                hint += f", or join them: text={joined}"
            raise CorpusError(f"{rule}. {hint}.")
    return {role: known[0] if known else role for role, known in found.items()}


def looks_like_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first row holds names: short, distinct, not numbers, in no other row.

    The first name may be empty, for the index of a data frame. In a table of few rows a label may
    occur only once, so there names must be single words.
    """
    if not rows:
        return False
    first, others = rows[0], rows[1:]
    named = [name.strip() for name in first]
    is_indexed = len(named) > 1 and not named[0]
    max_words = _MAX_NAME_WORDS if len(others) >= _MIN_ROWS else 1
    if not all(_is_name(name, max_words) for name in named[is_indexed:]):
        return False
    return len({*named}) == len(named) and not any(
        name and name == value.strip()
        for row in others
        for name, value in zip(named, row, strict=False)
    )


def _is_name(text: str, max_words: int) -> bool:
    is_short = 0 < len(text) <= _MAX_NAME and len(text.split()) <= max_words
    return is_short and _to_number(text) is None
