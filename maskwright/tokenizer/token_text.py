"""The text that tokens represent, the tokens of a string, and how well a tokenizer fits a text.

Byte-level tokens represent bytes by printable characters, WordPiece marks tokens that continue a
word, and SentencePiece marks the blank before a word. Bits per character divide by the characters
that tokens represent.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from maskwright.files import JsonObject
from maskwright.tokenizer.files import calling_library
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.words import is_punctuation, match_greedily, split_clusters

_METASPACE = "▁"
_SYMBOLS = {"\t": "⇥", **dict.fromkeys("\n\x85\u2028\u2029", "↵")}
_BYTE = re.compile("<0x([0-9A-F]{2})>")  # SentencePiece's token for a byte
_NO_BYTES_OF_TEXT = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))  # never in UTF-8


class TokenText:
    """The tokens of one tokenizer and the text that they represent.

    Attributes:
        prefix: put before symbols that continue a word (``##`` for WordPiece).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = tokenizer.description["model"]
        self._tokenizer = tokenizer
        self._model: Any = tokenizer.backend.model
        self._is_greedy = model["type"] == "WordPiece"
        self._is_bytes = _mentions_bytes(tokenizer.description["pre_tokenizer"])
        self._has_bytes = bool(model.get("byte_fallback"))
        self._suffix: str = model.get("end_of_word_suffix") or ""
        self.prefix: str = model.get("continuing_subword_prefix") or ""

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """All tokens of the model, with their ids."""
        return self._tokenizer.backend.get_vocab(with_added_tokens=False)

    @cached_property
    def _added(self) -> set[str]:
        return {token["content"] for token in self._tokenizer.description["added_tokens"]}

    def cut(self, word: str) -> list[str]:
        """Return the tokens of a pre-tokenized word, with the unknown token where needed.

        Unigram returns unknown text unchanged, which is not a token.
        """
        with calling_library("the tokenizer fails on this text"):
            return [token.value for token in self._model.tokenize(word)]

    def cut_token(self, token: str) -> list[int]:
        """Return the ids of the tokens of a string that is not a token itself."""
        if self._is_greedy and token.startswith(self.prefix):
            found, _ = match_greedily(token, self.vocabulary, self.prefix)
        else:
            found = self.cut(token)
        ids = [self.vocabulary.get(piece, self._tokenizer.unk_id) for piece in found]
        return ids or [self._tokenizer.unk_id]

    def may_join(self, token: str) -> bool:
        """Return True if a token may be part of a longer one: letters and digits, with at most one
        blank before.

        Punctuation is excluded, because masking treats it as a separate word.
        """
        text = self.spell(token).removeprefix(" ")
        return not any(is_punctuation(c) or c.isspace() for c in text)

    def has_letters(self, word: str) -> bool:
        """Return True if a pre-tokenized word contains a letter or digit."""
        return any(character.isalnum() for character in self.spell(word))

    def count_characters(self, token: str) -> int:
        """Return the number of characters that a token represents, without whitespace.

        A character whose bytes are several tokens counts for the first of them.
        """
        if self._is_bytes:
            return sum(map(_begins_character, _to_bytes(token)))
        byte = _BYTE.fullmatch(token) if self._has_bytes else None
        if byte is not None:
            return int(_begins_character(int(byte[1], 16)))
        return sum(not character.isspace() for character in self.spell(token))

    def is_blank(self, token: str) -> bool:
        """Return True if a token represents only whitespace."""
        if self._has_bytes and (byte := _BYTE.fullmatch(token)):
            return int(byte[1], 16) < 0x80 and chr(int(byte[1], 16)).isspace()
        return self.spell(token).isspace()

    def is_impossible(self, token: str) -> bool:
        """Return True if a token is a byte that no text has: all bytes are in the vocabulary."""
        if self._has_bytes and (byte := _BYTE.fullmatch(token)):
            return int(byte[1], 16) in _NO_BYTES_OF_TEXT
        return self._is_bytes and len(token) == 1 and _to_bytes(token)[0] in _NO_BYTES_OF_TEXT

    def begins_word(self, token: str) -> bool:
        """Return True if a token is marked as the beginning of a word."""
        if self.prefix:
            return not token.startswith(self.prefix)
        return self.spell(token).startswith(" ")

    def spell(self, token: str) -> str:
        """Return the text of a token, with the blank that it begins with."""
        if self._is_bytes:
            return _to_bytes(token).decode("utf-8", "ignore")  # without incomplete characters
        token = token.removeprefix(self.prefix).removesuffix(self._suffix)
        return token.replace(_METASPACE, " ")

    def show(self, token_id: int) -> str:
        """Return a token as people read it: blanks as ▁, line ends as ↵, WordPiece's ## kept.

        The bytes of an incomplete character are shown as SentencePiece spells them: <0xEA>.
        """
        token = self._tokenizer.token(token_id)
        byte = _BYTE.fullmatch(token) if self._has_bytes else None
        if byte is not None:
            values = bytes([int(byte[1], 16)])
        elif self._is_bytes and token not in self._added:  # which are text, not bytes
            values = _to_bytes(token)
        else:
            values = token.removesuffix(self._suffix).encode("utf-8", "surrogatepass")
        return "".join(map(_show_character, values.decode("utf-8", "surrogateescape")))


def show_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """Return `TokenText.show` of each id."""
    return list(map(TokenText(tokenizer).show, ids))


def _show_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of an incomplete character
        return f"<0x{code - 0xDC00:02X}>"
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    if code < 0x20:
        return chr(0x2400 + code)  # the Unicode picture of a control character
    if character.isspace():
        return _METASPACE
    return character if character.isprintable() else f"<U+{code:04X}>"


def _begins_character(byte: int) -> bool:
    """Return True if a UTF-8 byte is the first of a character that is not whitespace."""
    return byte & 0xC0 != 0x80 and not chr(byte).isspace()


def make_examples(
    tokenizer: Tokenizer, num_texts: int, counts: NDArray[np.int64] | None = None
) -> list[str]:
    """Return texts that quote nothing: the most frequent words of the vocabulary, four in each.

    A vocabulary with too few words, such as one of characters, provides its letters.

    Args:
        counts: how often each token occurs; None: vocabularies list frequent tokens first.
    """
    pieces, ids = TokenText(tokenizer), tokenizer.ordinary_ids
    if counts is not None:
        ids = ids[np.argsort(-counts[ids], kind="stable")]
    tokens = tokenizer.tokens(ids.tolist())
    texts = {token: pieces.spell(token) for token in tokens}
    words = [text.strip() for token, text in texts.items() if pieces.begins_word(token)]
    words = [word for word in words if len(word) > 1 and word.isalpha()]
    if len(words) < 4 * num_texts:
        words = [word for word in dict.fromkeys(map(str.strip, texts.values())) if word.isalpha()]
    # Sorted, because words of equal frequency may be in the order of a sentence.
    words, blank = sorted(words[: 4 * num_texts]), "" if tokenizer.tokens_are_words else " "
    return [blank.join(words[4 * n : 4 * n + 4]) for n in range(num_texts)]


def _mentions_bytes(step: JsonObject | None) -> bool:
    if step is None:
        return False
    inner = cast(list[JsonObject], step.get("pretokenizers", []))
    return step["type"] == "ByteLevel" or any(map(_mentions_bytes, inner))


def _to_bytes(token: str) -> bytes:
    alphabet = _byte_alphabet()
    return bytes(alphabet[c] for c in token if c in alphabet)


def split_byte_clusters(word: str) -> list[list[str]]:
    """Return `split_clusters` of a word that is spelled in GPT-2's byte alphabet.

    Bytes of no whole character, at the ends of a word that was cut, are characters of their own.
    """
    if word.removeprefix("Ġ").isascii():  # most words of English, which have no marks
        return []
    values = bytes(map(_byte_alphabet().__getitem__, word))
    spelled = {byte: character for character, byte in _byte_alphabet().items()}
    return [
        ["".join(map(spelled.__getitem__, c.encode("utf-8", "surrogateescape"))) for c in cluster]
        for cluster in split_clusters(values.decode("utf-8", "surrogateescape"))
    ]


@cache
def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's byte alphabet: other than printable bytes are characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    disguised = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | disguised


BLANK = -1  # instead of a number of characters: the token represents no text, or only blanks


def count_characters(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the number of characters that each token represents: [V].

    It is `BLANK` for blanks, and for special tokens such as [UNK], whose text is unknown.
    """
    pieces = TokenText(tokenizer)
    counts = np.full(tokenizer.vocab_size, BLANK, np.int64)
    ordinary = tokenizer.ordinary_ids
    for token_id, token in zip(ordinary, tokenizer.tokens(ordinary.tolist()), strict=True):
        if not pieces.is_blank(token):
            counts[token_id] = pieces.count_characters(token)
    return counts


_NUM_LISTED = 20


@dataclass(frozen=True)
class TokenizerStats:
    """Measures of a tokenizer on a text. Ratios are 0 for a text without words or tokens.

    Attributes:
        num_tokens, num_characters, num_bytes: sizes of the text (UTF-8).
        num_words: number of parts between whitespace; in scripts without spaces, whole sentences.
        fertility: tokens per such word (Rust et al. 2021, arXiv:2012.15613).
        tokens_per_character, bytes_per_token: measures that are comparable in every script.
        unknown_share: share of tokens that are [UNK].
        lost_share: share of characters, without blanks, in these tokens.
        split_share: share of words, as whole-word masking splits them, with several tokens.
        used_share: share of the ordinary vocabulary that occurs in the text.
        most_frequent: the most frequent tokens with their counts.
        longest: the longest tokens of the vocabulary.
    """

    num_tokens: int
    num_characters: int
    num_bytes: int
    num_words: int
    fertility: float
    tokens_per_character: float
    bytes_per_token: float
    unknown_share: float
    lost_share: float
    split_share: float
    used_share: float
    most_frequent: list[tuple[str, int]]
    longest: list[str]


def measure_tokenizer(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenizerStats:
    """Measure a tokenizer on `texts`, which are read as a stream."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    sizes: Counter[str] = Counter()
    for text in texts:
        encoded = tokenizer.encode(text)
        counts += np.bincount(encoded.ids, minlength=tokenizer.vocab_size)
        starts = np.flatnonzero(encoded.word_starts)
        lengths = np.diff(np.append(starts, len(encoded.ids)))
        sizes["parts"] += len(lengths)
        sizes["split"] += int((lengths > 1).sum())
        sizes["characters"] += len(text)
        sizes["bytes"] += len(text.encode())
        words = text.split()
        sizes["words"] += len(words)
        sizes["visible"] += sum(map(len, words))
        sizes["lost"] += sum(tokenizer.find_lost(text))
    num_tokens = int(counts.sum())
    ordinary = tokenizer.ordinary_ids
    pieces = TokenText(tokenizer)
    pairs = zip(tokenizer.tokens(ordinary.tolist()), ordinary.tolist(), strict=True)
    longest = sorted(pairs, key=lambda pair: (-len(pieces.spell(pair[0])), pair[0]))
    order = np.argsort(-counts, kind="stable")[:_NUM_LISTED]
    return TokenizerStats(
        num_tokens=num_tokens,
        num_characters=sizes["characters"],
        num_bytes=sizes["bytes"],
        num_words=sizes["words"],
        fertility=_divide(num_tokens, sizes["words"]),
        tokens_per_character=_divide(num_tokens, sizes["characters"]),
        bytes_per_token=_divide(sizes["bytes"], num_tokens),
        unknown_share=_divide(int(counts[tokenizer.unk_id]), num_tokens),
        lost_share=_divide(sizes["lost"], sizes["visible"]),
        split_share=_divide(sizes["split"], sizes["parts"]),
        used_share=_divide(int((counts[ordinary] > 0).sum()), len(ordinary)),
        most_frequent=[(pieces.show(int(i)), int(counts[i])) for i in order if counts[i]],
        longest=[pieces.show(token_id) for _, token_id in longest[:_NUM_LISTED]],
    )


def _divide(count: int, total: int) -> float:
    return count / total if total else 0.0


SENTENCE_ENDS = frozenset((".", "!", "?", "\u3002", "\uff01", "\uff1f"))

# A mark and its closing quotes and brackets, then a blank, which CJK text has none of; or a line
# end. The group is the first character of what follows, behind opening quotes and brackets.
_NARROW, _WIDE = (
    "".join(sorted(e for e in SENTENCE_ENDS if e.isascii() is i)) for i in (True, False)
)
_CLOSING = r"[\"')\]\u2019\u201d\u00bb\u300d\u300f\u3011\uff09]*+"
_OPENING = r"[\"'(\[\u2018\u201c\u00ab\u00bf\u00a1\u300c\u300e\u3010\uff08]*"
_END = re.compile(
    rf"(?:(?<=[{_NARROW}]){_CLOSING}\s+|(?<=[{_WIDE}]){_CLOSING}\s*|\n\s*)(?={_OPENING}(\S))"
)
# Titles, initials and common abbreviations of English end in a stop that ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'.])(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|Rev|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rep|Jr|Sr|No|Vol"
    r"|vs|etc|cf|e\.g|i\.e|c|ca|approx|Inc|Ltd|Co|Corp|Mt|Ft|al|pp?|ed|eds|fl|d|b|r)\.$"
)
_MAX_ABBREVIATION = 16  # characters, with the one before it


def cut_sentences(text: str) -> list[str]:
    """Return the sentences of `text` in order, without the whitespace between them.

    A sentence ends after one of `SENTENCE_ENDS`, unless this is the stop of an English
    abbreviation, and at a line end. No sentence begins with a lowercase letter or one of the marks.
    """
    text, sentences, start = text.rstrip(), list[str](), 0  # else the regex backtracks at the end
    for end in _END.finditer(text):
        stop = end.start() + len(end.group().rstrip())  # after closing quotes and brackets
        before = text[max(start, stop - _MAX_ABBREVIATION) : stop]
        is_stop = "\n" not in end.group() and _ABBREVIATION.search(before)
        if not (is_stop or end[1].islower() or end[1] in SENTENCE_ENDS):
            sentences.append(text[start:stop].strip())
            start = end.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def find_sentence_ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of tokens that are the end mark of a sentence.

    A mark that the tokenizer spells in several byte tokens has no such id, because its last byte
    also ends letters.
    """
    last = (tokenizer.encode(end).ids[-1:].tolist() for end in SENTENCE_ENDS)
    return frozenset(
        token_id
        for ids in last
        for token_id in ids
        if token_id != tokenizer.unk_id and tokenizer.decode([token_id]).strip() in SENTENCE_ENDS
    )
