"""Tagged words in tables: a row for each word, or a row for each sentence with lists.

``Sentence #,Word,POS,Tag`` has a word a row; a sentence ends where the value of its column changes,
and an empty value continues it. JSON lines and Parquet may have lists, ``{"tokens": ["Alice",
"left"], "ner_tags": ["B-PER", "O"]}``; the names of numbers are those that the library datasets
writes into a Parquet file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from maskwright.corpus.column_roles import (
    SENTENCE,
    SENTENCES,
    TAG,
    TAGS,
    WORD,
    WORDS,
    Column,
    looks_like_header,
    normalize_name,
)
from maskwright.corpus.readers.columns import opening_parquet
from maskwright.corpus.table_files import (
    TABLES,
    TableRow,
    find_one,
    list_names,
    parse_columns,
    peek_rows,
    read_columns,
    read_text_lines,
)
from maskwright.errors import CorpusError, show_value
from maskwright.files import parse_object
from maskwright.finetuning.conll import Sentence, join_words, read_words
from maskwright.formatting import count_noun

_USUAL = {SENTENCE: SENTENCES, WORD: WORDS, TAG: TAGS}
_RECORDS = ("jsonl", "parquet")
TaggedWords = tuple[str, Sentence, list[str]]  # place, words, tags


def find_word_table(
    path: Path, given: Mapping[str, Column], *, has_tags: bool = True
) -> dict[str, Column] | None:
    """Return the columns of a table of words by role; None for a CoNLL file.

    A text file is a table if its first line names a column of sentences and one of words, or if a
    column is given by name. Raise CorpusError if it has other names than the usual ones.
    """
    kind, given = find_kind(path), parse_columns(given)
    names = list_names(path, kind)
    normal = {normalize_name(name): name for name in reversed(names)}
    found: dict[str, Column] = {}
    for role, usual in _USUAL.items():
        if role != TAG or has_tags:
            named = next((normal[each] for each in usual if each in normal), None)
            found |= {} if named is None else {role: named}
    is_named = WORD in found and (TAG in found or not has_tags)
    found |= given
    needed = (WORD, TAG)[: 1 + has_tags]
    by_name = [column for column in given.values() if isinstance(column, str)]
    if kind in _RECORDS or by_name or SENTENCE in given:
        wrong = [role for role in needed if role not in found]
        wrong += [str(name) for name in by_name if name not in names]
        if wrong:
            raise _unknown(path, names, f"is read as a table, but has no column {wrong[0]}")
        return found
    if is_named and SENTENCE in found:
        return found
    _, rows = peek_rows(path, kind)
    if is_named and rows and any(cell.strip()[:1] == "[" for cell in rows[0]):
        rule = "has lists as texts, from which words cannot be read with certainty"
        raise CorpusError(f"{path} {rule}. Write JSON lines or Parquet.")
    is_table = kind == "csv" and not is_named and len(names) > 1 < len(rows)
    if is_table and looks_like_header([names, *rows]) and "," in _find_first(path):
        raise _unknown(path, names, "is a table, not a CoNLL file, but has no column word")
    return None


def is_word_table(columns: Mapping[str, Column]) -> bool:
    """Return True if columns are those of a table of words, not positions of a CoNLL file."""
    return SENTENCE in columns or any(isinstance(column, str) for column in columns.values())


def find_kind(path: Path) -> str:
    """Return the kind of a table by the name of a file, else by its first line."""
    kind = find_one(path).kind
    if kind in TABLES:
        return kind
    return "csv" if parse_object(_find_first(path)) is None else "jsonl"


def _find_first(path: Path) -> str:
    return next((line for line in read_text_lines(path) if line.strip()), "")


def _unknown(path: Path, names: Sequence[str], rule: str) -> CorpusError:
    shown = ", ".join(names[:20])
    remedy = "Name its columns: --columns sentence=… word=… tag=…"
    return CorpusError(f"{path} {rule}: it has {shown}. {remedy}")


def read_word_table(
    path: Path, columns: Mapping[str, Column], has_header: bool | None = None
) -> Iterator[TaggedWords]:
    """Yield place, words and tags of each sentence; without a column of tags, these are empty.

    Raise CorpusError as `read_columns`, or if a word or a tag is missing.
    """
    kind, empty = find_kind(path), True
    names = _read_tag_names(path, columns) if kind == "parquet" else []
    place, words, tags, sentence = "", list[str](), list[str](), None
    for row in read_columns(path, columns, has_header, kind=kind):
        if isinstance(row.values[WORD], list):
            found = [_spell(row, WORD, one) for one in cast(list[Any], row.values[WORD])]
            given = _read_tags(row, names, len(found))
            if found:
                empty = False
                yield row.place, join_words(found), given
            continue
        if SENTENCE not in row.values:
            rule = "has a word a row, but no column that says to which sentence it belongs"
            raise CorpusError(f"{path} {rule}. Name it: --columns sentence=…")
        value = row.values[SENTENCE]
        is_same = value is None or value != value or value in ("", sentence)
        if words and not is_same:
            yield place, join_words(words), tags
            words, tags = [], []
        sentence, place, empty = (
            sentence if is_same else value,
            place if words else row.place,
            False,
        )
        words.append(_spell(row, WORD, row.values[WORD]))
        tags += [_spell(row, TAG, row.values[TAG]) if TAG in row.values else ""]
    if words:
        yield place, join_words(words), tags
    if empty:
        raise CorpusError(f"{path} holds no sentence. Add one, or check the path.")


def _read_tags(row: TableRow, names: Sequence[str], count: int) -> list[str]:
    """Return the tags of a row with lists."""
    if TAG not in row.values:
        return [""] * count
    value = row.values[TAG]
    given = cast(list[Any], value) if isinstance(value, list) else list[Any]()
    if len(given) != count:
        rule = f"has {count_noun(count, 'word')}, but {count_noun(len(given), 'tag')}"
        raise CorpusError(f"{row.place} {rule}. Correct or remove it.")
    if given and all(type(one) is int for one in given):
        with suppress(IndexError):
            if names and min(given) >= 0:
                return [names[int(one)] for one in given]
        rule = f"tag = {show_value(given[0])} is a number without a name"
        raise CorpusError(f"{row.place}: {rule}. Write the tags by name, such as B-PER.")
    return [_spell(row, TAG, one) for one in given]


def _spell(row: TableRow, role: str, value: Any) -> str:
    """Return a word or a tag; raise CorpusError if it is missing."""
    text = str(value) if isinstance(value, str | int) else ""
    if not text.strip():
        shown = "is missing" if value in (None, "") else f"= {show_value(value)} is no {role}"
        raise CorpusError(f"{row.place}: {role} {shown}. Correct or remove the row.")
    return text


def _read_tag_names(path: Path, columns: Mapping[str, Column]) -> list[str]:
    """Return the names of the numbers of a column, as the library datasets writes them."""
    with opening_parquet(find_one(path)) as table:
        stated: Mapping[bytes, bytes] = table.schema_arrow.metadata or {}
    record: Any = parse_object(stated.get(b"huggingface", b"{}").decode("utf-8", "replace")) or {}
    with suppress(KeyError, TypeError):
        feature = record["info"]["features"][columns[TAG]]
        inner = feature.get("feature", feature)
        return [str(name) for name in inner["names"]]
    return []


def find_words(path: Path) -> dict[str, Column] | None:
    """Return the columns of a table of words, with or without tags; None for any other file."""
    if find_one(path).kind not in TABLES:
        return None
    normal = {normalize_name(name) for name in list_names(path)}
    return find_word_table(path, {}, has_tags=False) if normal & {*WORDS} else None


def read_given_words(
    path: Path, given: Mapping[str, Column], trained: Mapping[str, Any], has_header: bool | None
) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL file or a table of words, whose tags are ignored.

    Args:
        given: the columns by role that the user gave.
        trained: the files of training, with their columns.
    """
    given, used = parse_columns(given), trained.get("columns", {})
    found = find_word_table(path, given, has_tags=False)
    if found is not None:
        return (words for _, words, _ in read_word_table(path, found, has_header))
    word, usual = given.get(WORD), used.get(WORD)
    return read_words(path, None if word is None else int(word), usual)
