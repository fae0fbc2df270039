"""Tagged words: CoNLL files, words of plain text, and the entities that tags mark.

A CoNLL file has one word per line and a blank line between sentences; `conll_layout` infers its
columns. By default the word is the first column, or the second beside an index, and its tag the
last, as in CoNLL-2003 and wikigold. Lines that begin with ``-DOCSTART-`` are skipped, and so are
the comments of CoNLL-U, such as ``# sent_id = 1``. Ten columns after an ID are CoNLL-U: there
ranges (``2-3``) and empty nodes (``4.1``) are no words. A range is the text of its words (``al`` of
``a`` and ``el``), and no blank follows ``SpaceAfter=No``.

Tags are ``O`` and ``PREFIX-KIND`` with the prefixes of IO, IOB, BIO, BIOES, BILOU and BMES; a tag
without such a prefix is its own kind. Entities follow CoNLL's ``conlleval`` (Tjong Kim Sang and De
Meulder, 2003) and seqeval: an entity begins at a begin prefix, at a new kind, and after ``O``. The
tags ``B`` and ``I`` alone have the kind ``_``. Other spellings (``b-per``, ``B_PER``, ``PER-B``;
``0`` for ``O``) are rewritten.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from maskwright.corpus.table_files import clean_name, open_lines
from maskwright.errors import CorpusError
from maskwright.finetuning.conll_layout import PREFIXED, UD_ID, find_layout
from maskwright.tokenizer.words import (
    WORD_BREAK,
    WordRule,
    WordSplitting,
    is_unspaced,
    measure_unspaced,
    split_characters,
)

OUTSIDE = "O"
_CHUNK = re.compile(rf"(?:(?!{WORD_BREAK})\S)+")
_MIN_SINGLE = 0.95  # of the words are single characters, where each character is a word
# Abbreviations and initials keep their dots; 's and 're are contracted verbs.
_WHOLE = re.compile(r"(?:[^\W\d_]\.)+|['\u2019]\w\w?")
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")
_PREFIXES = frozenset("BIESLUM")
_SUFFIXED = re.compile(r"(?P<kind>.+)[-_:](?P<prefix>[BIESLUM])", re.IGNORECASE)


@dataclass(frozen=True)
class TaggedSentence:
    """Words and the tag of each.

    Attributes:
        place: the file and line of the first word, for messages.
        text: the sentence as it was written, if that is known.
    """

    place: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    text: str = ""

    @property
    def texts(self) -> list[str]:
        """The sentence as one text."""
        return [self.text or join_words(self.words).text]

    @property
    def group_texts(self) -> list[str]:
        return ["\x1f".join(self.words)]


class Word(NamedTuple):
    """A word and its character span in the text."""

    text: str
    start: int
    end: int


class Sentence(list[str]):
    """The words of a sentence; `text` is what they are from, `spans` their characters in it."""

    def __init__(self, text: str, words: Iterable[Word]) -> None:
        spans = [*words]
        super().__init__(word.text for word in spans)
        self.text, self.spans = text, [(word.start, word.end) for word in spans]


def join_words(words: Sequence[str]) -> Sentence:
    """Return words as one text; characters of scripts without blanks are not separated."""
    shows_words = any(measure_unspaced(word) > 1 for word in words)  # by blanks
    text, found = "", list[Word]()
    for word, after in pairwise([*words, ""]):
        found.append(Word(word, len(text), len(text) + len(word)))
        is_apart = shows_words or not any(map(is_unspaced, word[-1:] + after[:1]))
        text += f"{word} " if after and is_apart else word
    return Sentence(text, found)


def read_conll(
    path: Path | str,
    word: int | None = None,
    tag: int | None = None,
    notes: list[str] | None = None,
) -> list[TaggedSentence]:
    """Return the sentences of a file.

    Args:
        word, tag: positions of their columns; negative ones count from the end. Default: those of
            `find_layout`.
        notes: receives what a reader of the file may not expect: comments that are skipped, tags
            in another spelling.

    Raises:
        CorpusError: the file is missing or holds no sentence, its columns differ, or a tag has no
            prefix while others have one.
    """
    return unify_sentences(_read_sentences(path, word, tag, has_tags=True, notes=notes), notes)


def unify_sentences(
    found: Iterable[tuple[str, Sentence, Sequence[str]]], notes: list[str] | None = None
) -> list[TaggedSentence]:
    """Return sentences, given as place, words and tags, with their tags in one spelling."""
    cleaned = [(place, words, [*map(clean_name, tags)]) for place, words, tags in found]
    spelled = _unify_tags({tag: place for place, _, tags in cleaned[::-1] for tag in tags})
    rewritten = sorted((tag, name) for tag, name in spelled.items() if tag != name)
    if rewritten and notes is not None:
        shown = [f"{tag} is read as {name}" for tag, name in rewritten]
        more = f", and {len(shown) - 5} more" if len(shown) > 5 else ""
        notes.append(f"the tag {', '.join(shown[:5])}{more}")
    return [
        TaggedSentence(place, tuple(words), tuple(spelled[tag] for tag in tags), words.text)
        for place, words, tags in cleaned
    ]


def _unify_tags(places: dict[str, str]) -> dict[str, str]:
    """Return each tag of a file as ``O`` or ``PREFIX-KIND`` if the tags mark entities."""
    named = sorted(tag for tag in places if tag not in ("O", "o", "0", "_", "-"))
    is_plain = any(tag.startswith(("B-", "I-")) for tag in named)
    for pattern in (PREFIXED, _SUFFIXED):
        matches = {tag: match for tag in named if (match := pattern.fullmatch(tag))}
        found = {tag: f"{m['prefix'].upper()}-{m['kind']}" for tag, m in matches.items()}
        found |= {tag: tag.upper() for tag in named if tag in ("B", "I", "b", "i")}
        has_begin = any(tag[0] in "BI" for tag in found.values())
        if is_plain or (has_begin and len(found) == len(named)):
            for tag in named:
                if tag not in found:
                    rule = f"tag = {tag} has no prefix, but {min(found)} has one"
                    header = "Is it a header? Remove it. " * places[tag].endswith(":1")
                    raise CorpusError(f"{places[tag]}: {rule}. {header}Write B-…, I-… or O.")
            return {tag: found.get(tag, OUTSIDE) for tag in places}
    # Beside names, "0" is no entity; among numbers and single letters, it is one of them.
    is_named = all(len(tag) > 1 and not tag.isdecimal() for tag in named)
    return {tag: OUTSIDE if is_named and tag in ("0", "o") else tag for tag in places}


def read_words(
    path: Path | str, word: int | None = None, usual: object = None
) -> Iterator[Sentence]:
    """Yield the words of each sentence of a file, with or without tags; raise as `read_conll`.

    Args:
        word: the position of their column; default: `usual` if it is one of a file of this layout.
        usual: the position in the files of training.
    """
    if word is None and isinstance(usual, int) and usual:
        layout = find_layout(list(open_lines(path)[1]), has_tags=False)
        # A file may lack the index or the tags of those of training.
        is_known = -layout.width <= usual < layout.width and layout.width > 2
        word = None if layout.is_indexed or not is_known else usual
    found = _read_sentences(path, word, None, has_tags=False, notes=None)
    return (words for _, words, _ in found)


def _read_sentences(
    path: Path | str, word: int | None, tag: int | None, has_tags: bool, notes: list[str] | None
) -> Iterator[tuple[str, Sentence, list[str]]]:
    """Yield file and line of each sentence, its words, and their tags.

    Without tags, lines may have any number of columns that includes the word.
    """
    name, lines = open_lines(path)
    lines = list(lines)
    layout = find_layout(lines, has_tags=has_tags)
    if notes is not None:
        notes += layout.describe()
    is_conllu = layout.is_conllu
    word, tag = layout.word if word is None else word, layout.tag if tag is None else tag
    needed = max(word + 1, -word, *((tag + 1, -tag, 2) if has_tags else ()))
    if layout.is_indexed and word == 0:
        rule = "column 0 counts the words of each sentence, and is none of them"
        raise CorpusError(f"{name}: {rule}. Name theirs, such as --columns word={layout.word}.")
    if has_tags and layout.width > 1 and (word - tag) % layout.width == 0:
        rule = f"has {layout.width} columns in most lines: word = {word} and tag = {tag} are one"
        raise CorpusError(f"{name} {rule}. Give --columns word=… tag=…")
    words, tags, text = list[Word](), list[str](), ""
    begin = covered = start = end = 0
    is_empty = True
    for number, (line, kind) in enumerate(zip([*lines, ""], [*layout.kinds, "break"], strict=True)):
        if kind == "break":
            if words:
                is_empty = False
                joined = join_words([word.text for word in words])
                yield f"{name}:{begin}", Sentence(text[:end], words) if is_conllu else joined, tags
            words, tags, text, covered = [], [], "", 0
        if kind != "line":
            continue
        columns = layout.split(line)
        layout.check(columns, needed, f"{name}:{number + 1}", is_exact=has_tags)
        identity = UD_ID.fullmatch(columns[0]) if is_conllu else None
        if is_conllu and (identity is None or identity[2] == "." or (identity[2] and word != 1)):
            continue  # an empty node, or a range of words whose forms are not read
        if identity is None or identity[2] or int(identity[1]) > covered:
            start, end = len(text), len(text) + len(columns[word])
            is_joined = is_conllu and "SpaceAfter=No" in columns[-1].split("|")
            text += columns[word] + " " * (not is_joined)
        if identity and identity[2]:
            covered = int(identity[3])
            continue
        begin = begin if words else number + 1
        words.append(Word(columns[word], start, end))
        tags.append(columns[tag] if has_tags else "")
    if is_empty:
        raise CorpusError(f"{name} holds no sentence. Add one, or check the path.")


def split_words(text: str, splitting: WordSplitting = "blanks") -> list[Word]:
    """Split plain text into words as CoNLL corpora have them: punctuation is separate.

    A model trained on such words knows ``Paris`` and ``,`` but has never seen ``Paris,``. Text is
    split at blanks, then punctuation and currency signs are split off both ends of each chunk;
    signs inside remain (``well-known``, ``don't``, ``3.5``). A run of the same sign is one word
    (``...``). Splitting the words again changes nothing. With ``unspaced_characters``, each
    character of a script without blanks, such as Chinese, is a word; with ``characters``, of all.
    """
    return [
        Word(text[start:end], start, end)
        for chunk in _CHUNK.finditer(text)
        for start, end in _split_scripts(text, *chunk.span(), splitting)
    ]


def find_word_rule(sentences: Iterable[Sequence[str]]) -> WordRule | None:
    """Return how the words of tagged sentences were split; None without words."""
    sizes = {True: Counter[int](), False: Counter[int]()}  # by whether the script is unspaced
    for word in (word for words in sentences for word in words):
        if any(map(str.isalnum, word)):
            sizes[measure_unspaced(word) > 0][len(split_characters(word))] += 1
    unspaced, others = (sizes[known] for known in (True, False))
    if not unspaced and not others:
        return None
    if unspaced[1] < _MIN_SINGLE * unspaced.total():
        return WordRule("blanks", max(unspaced))
    is_apart = 0 < _MIN_SINGLE * others.total() <= others[1]
    return WordRule("characters" if is_apart else "unspaced_characters")


def _split_scripts(
    text: str, start: int, end: int, splitting: WordSplitting
) -> Iterator[tuple[int, int]]:
    """Yield the words of a chunk: characters that are words, and the words between them."""
    begin = place = start
    for character in split_characters(text[start:end]) if splitting != "blanks" else ():
        after = place + len(character)
        if splitting == "characters" or is_unspaced(character[0]):
            yield from _split_chunk(text, begin, place)
            yield place, after
            begin = after
        place = after
    yield from _split_chunk(text, begin, end)


def _split_chunk(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if _WHOLE.fullmatch(text, start, end):
        yield start, end
        return
    first, last = start, end
    while first < end and _is_sign(text[first]):
        first += 1
    while last > first and _is_sign(text[last - 1]):
        last -= 1
    if last < end and _WHOLE.fullmatch(text, first, last + 1):
        last += 1
    yield from _group_signs(text, start, first)
    if first < last:
        yield first, last
    yield from _group_signs(text, last, end)


def _group_signs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for _, group in groupby(range(start, end), key=lambda position: text[position]):
        positions = list(group)
        yield positions[0], positions[-1] + 1


def _is_sign(character: str) -> bool:
    category = unicodedata.category(character)
    return category.startswith("P") or category == "Sc"


class Entity(NamedTuple):
    """Words `start` to `end` (exclusive) of a sentence."""

    kind: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return prefix and kind of a tag: ``("B", "PER")``; ``("I", "NOUN")`` if it has no prefix."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if tag in ("B", "I"):
        return tag, "_"
    prefix, dash, kind = tag.partition("-")
    return (prefix, kind) if dash and prefix in _PREFIXES else ("I", tag)


def marks_entities(tags: Iterable[str]) -> bool:
    """Return True if tags mark entities: some are ``O``, or have a begin or end prefix.

    Parts of speech do not: every word has one, and two adjacent nouns are not one entity.
    """
    return any(tag == OUTSIDE or split_tag(tag)[1] != tag for tag in tags)


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order."""
    entities: list[Entity] = []
    begin, before, kind_before = 0, OUTSIDE, ""
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        is_new = prefix in _BEGINS or before in _ENDS or kind != kind_before
        if is_new or prefix == OUTSIDE:
            if before != OUTSIDE:
                entities.append(Entity(kind_before, begin, position))
            begin = position
        before, kind_before = prefix, kind
    return entities
