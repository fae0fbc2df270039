"""Fast encoding: text is cut into parts that encode independently, and each part is encoded once.

Most of a text consists of few different words. If a tokenizer never uses context across a blank,
encoding the chunks between blanks is the same as encoding the whole text, and a dictionary from
chunk to tokens does nearly all the work. A new chunk ("snails.") is first divided into parts that
are mostly known ("snails", "."). `choose_cutting` decides from the tokenizer's description whether
and where its text may be cut; other tokenizers get the whole text.

Texts with masks are encoded as in training: what touches a mask continues its word. The library
encodes the text before and after a mask as if each were a whole text. After the mask of
``un[MASK]able`` it therefore begins a word, which training never shows: inside a word WordPiece has
``##able``, and Unigram has no ``▁``. `PromptEncoder` pre-tokenizes the word with a letter in place
of the mask, and tokenizes its parts separately. That is exact: where a word has a boundary between
tokens, the tokens on each side do not depend on the other side.
"""

import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import filterfalse, pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import PreTokenizedString, Token, pre_tokenizers

from maskwright.files import JsonObject
from maskwright.tokenizer.files import calling_library, match_greedily
from maskwright.tokenizer.words import ACCENTS, BYTE_WORDS, INVISIBLE, WORD_BREAK, find_word_starts

WORD_START = 1 << 31  # the high bit of a packed token; the other bits are its id

# A longer run without a blank is cut, because the library needs about 100 bytes of memory per
# character. BERT's WordPiece encodes every word of more than 100 characters as [UNK] anyway.
MAX_CHUNK_CHARACTERS = 16_384
# Even a text that may not be cut is cut if it is longer than this.
MAX_WHOLE_CHARACTERS = 2_000_000

_CACHE_BYTES = 150_000_000
_ENTRY_BYTES = 200


@dataclass(frozen=True)
class Cutting:
    """Rules for cutting text: `split` into chunks, then chunks that match `plain` into `parts`."""

    split: Callable[[str], list[str]]
    plain: re.Pattern[str] | None = None
    parts: re.Pattern[str] | None = None

    def divide(self, chunk: str) -> list[str]:
        """Return the parts of a chunk, or the chunk itself if it cannot be divided."""
        if self.plain and self.parts and self.plain.fullmatch(chunk):
            return self.parts.findall(chunk)
        return [chunk]


def _split_at_blanks(text: str) -> list[str]:
    """Split at blanks and line ends, for tokenizers that drop whitespace."""
    return text.replace("\n", " ").split(" ")


_BLANK_BESIDE_SPACE = re.compile(r" (?:(?=\s)|(?<=\s ))")
_BEFORE_SINGLE_BLANK = re.compile(r"(?<=\S)(?= \S)")


def _split_before_blanks(text: str) -> list[str]:
    """Split before each single blank, for tokenizers that keep whitespace.

    The regular expression of byte-level BPE joins one blank with the word after it, and a cut
    inside a longer run of whitespace would change how the run is divided.
    """
    if _BLANK_BESIDE_SPACE.search(text) or text[:1].isspace() or text[-1:].isspace():
        return _BEFORE_SINGLE_BLANK.split(text)
    first, *others = text.split(" ")
    return [first, *[" " + part for part in others]]


# BERT's pre-tokenizer separates every ASCII punctuation character. Byte-level BPE keeps runs of
# them together, with the blank before, and treats some apostrophes as letters.
BERT_CUTTING = Cutting(
    _split_at_blanks, re.compile(r"[!-~]+"), re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
)
BYTE_CUTTING = Cutting(
    _split_before_blanks, re.compile(r" ?[!-&(-~]+"), re.compile(r" ?[A-Za-z0-9]+| ?[^ A-Za-z0-9]+")
)
BLANK_CUTTING = Cutting(_split_at_blanks)
# For any tokenizer; approximate, but sufficient to count words.
ROUGH_CUTTING = Cutting(_split_before_blanks)

_PER_CHARACTER = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"}


def choose_cutting(description: JsonObject) -> Cutting | None:
    """Return exact rules for cutting text for this ``tokenizer.json``, or None."""
    ordinary_added = any(not token["special"] for token in description["added_tokens"])
    if ordinary_added or not _is_per_character(description["normalizer"]):
        return None
    pre_tokenizer = description["pre_tokenizer"] or {"type": None}
    parts = cast(list[JsonObject], pre_tokenizer.get("pretokenizers", [pre_tokenizer]))
    kinds = [part["type"] for part in parts]
    if kinds[:1] == ["BertPreTokenizer"] and set(kinds[1:]) <= {"Split"}:
        return BERT_CUTTING
    if kinds[:1] == ["WhitespaceSplit"]:
        schemes = {part["prepend_scheme"] for part in parts if part["type"] == "Metaspace"}
        return BLANK_CUTTING if schemes <= {"always"} else None
    if kinds == ["ByteLevel"] and parts[0]["use_regex"] and not parts[0]["add_prefix_space"]:
        return BYTE_CUTTING
    if kinds in (["Split"], ["Split", "ByteLevel"]):
        known = ({"Regex": r"[\s\S]"}, {"Regex": BYTE_WORDS})
        return BYTE_CUTTING if parts[0]["pattern"] in known else None
    return None


def _is_per_character(normalizer: JsonObject | None) -> bool:
    """Return True if normalizing the parts between blanks is the same as normalizing the text."""
    if normalizer is None:
        return True
    if normalizer["type"] == "Sequence":
        parts = cast(list[JsonObject], normalizer["normalizers"])
        return all(_is_per_character(part) for part in parts)
    if normalizer["type"] == "Replace":  # of single characters, whatever is beyond a blank
        return normalizer["pattern"].get("Regex") in (ACCENTS, INVISIBLE, WORD_BREAK)
    return normalizer["type"] in _PER_CHARACTER


class CachedEncoder:
    """Encoder of text to packed tokens (uint32: word-start bit and id), with a chunk dictionary."""

    def __init__(self, backend: tokenizers.Tokenizer, cutting: Cutting | None) -> None:
        self._backend = backend
        self._cutting = cutting
        self._longest = MAX_CHUNK_CHARACTERS if cutting else MAX_WHOLE_CHARACTERS
        self._known: dict[str, bytes] = {}
        self._bytes = 0

    def encode(self, text: str) -> NDArray[np.uint32]:
        """Return the packed tokens of `text`, without special tokens."""
        if self._cutting is None:
            return np.frombuffer(self._encode_long(text), np.uint32)
        chunks = self._cutting.split(text)
        if self._bytes > _CACHE_BYTES:
            self._known, self._bytes = {}, 0
        known = self._known  # another thread may replace it meanwhile
        new = set(filterfalse(known.__contains__, chunks))
        if new:
            self._learn(known, {chunk: self._cutting.divide(chunk) for chunk in new})
        return np.frombuffer(b"".join(map(known.__getitem__, chunks)), np.uint32)

    def _learn(self, known: dict[str, bytes], divided: dict[str, list[str]]) -> None:
        parts = {part for parts in divided.values() for part in parts if part not in known}
        short = [part for part in parts if len(part) <= self._longest]
        with calling_library("the tokenizer fails on this text"):
            encodings = self._backend.encode_batch(short, add_special_tokens=False)
        for part, encoding in zip(short, encodings, strict=True):
            known[part] = pack_encoding(part, encoding)
        for part in parts - known.keys() if len(short) < len(parts) else ():
            known[part] = self._encode_long(part)
        for chunk, its_parts in divided.items():
            if len(its_parts) > 1:
                known[chunk] = b"".join([known[part] for part in its_parts])
        self._bytes += sum(_ENTRY_BYTES + 2 * len(chunk) for chunk in (*parts, *divided))

    def _encode_long(self, part: str) -> bytes:
        size, packed = self._longest, bytearray()
        for start in range(0, len(part), size):
            piece = part[start : start + size]
            with calling_library("the tokenizer fails on this text"):
                # A batch of one, because `encode` holds the GIL.
                [encoding] = self._backend.encode_batch([piece], add_special_tokens=False)
            packed += pack_encoding(piece, encoding)
        return bytes(packed)


def pack_encoding(text: str, encoding: tokenizers.Encoding) -> bytes:
    """Return the library's encoding of `text` as the bytes of packed tokens."""
    packed = array("I", encoding.ids)
    if text.isascii() and text.isalnum():
        starts = [True] * bool(packed)  # a plain word: only its first token begins a word
    else:
        starts = find_word_starts(text, encoding.offsets)
    for index, is_start in enumerate(starts):
        if is_start:
            packed[index] |= WORD_START
    return packed.tobytes()


# In place of a mask is a letter that no normalizer composes with a neighbor, or an ideograph if one
# is beside the mask, because WordPiece makes each a word. The text must not have it.
_LETTERS, _IDEOGRAPHS = "ƻꞏq", "㐂㒵"
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


class Tokens(NamedTuple):
    """The ids of tokens, and the character span of each."""

    ids: list[int]
    spans: list[tuple[int, int]]

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, text: str) -> "Tokens":
        """Return the library's tokens of a text, without those of the post-processor."""
        # A batch of one, because `encode` holds the GIL.
        [encoding] = backend.encode_batch([text], add_special_tokens=False)
        return cls(encoding.ids, encoding.offsets)


class PromptEncoder:
    """Encoder of texts in which special tokens are recognized.

    Args:
        backend: the tokenizer, without its post-processor.
        description: its ``tokenizer.json``.
        mask: the mask token.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, description: Mapping[str, Any], mask: str
    ) -> None:
        model = description["model"]
        self._backend, self._mask, self._mask_id = backend, mask, backend.token_to_id(mask)
        self._glued = re.compile(rf"\S{re.escape(mask)}|{re.escape(mask)}\S", re.IGNORECASE)
        self._added = {token["id"]: token["content"] for token in description["added_tokens"]}
        self._model: Any = backend.model
        self._unk_token: str = model.get("unk_token") or ""
        self._longest: int = model.get("max_input_chars_per_word") or 0  # of WordPiece
        self._prefix: str = model.get("continuing_subword_prefix") or ""
        self._has_affix = bool(self._prefix or model.get("end_of_word_suffix"))
        is_greedy = model["type"] == "WordPiece"
        self._vocabulary = backend.get_vocab(with_added_tokens=False) if is_greedy else None
        self._spelled: dict[str, str] = {}

    def encode(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        found = Tokens.of(self._backend, text)
        ids, spans = found
        if self._mask_id not in ids or not self._glued.search(text):
            return found
        whole = Tokens([], [])
        added = [n for n, one in enumerate(ids) if self._is_added(one, text[slice(*spans[n])])]
        for before, after in pairwise([-1, *added, len(ids)]):
            start = spans[before][1] if before >= 0 else 0
            stop = spans[after][0] if after < len(ids) else len(text)
            left = before >= 0 and ids[before] == self._mask_id and _has_no_blank(text, start)
            right = after < len(ids) and ids[after] == self._mask_id and _has_no_blank(text, stop)
            beside = None
            if start < stop and (left or right):
                letters = [_choose_letters(text, *spans[n]) for n in (before, after % len(ids))]
                beside = self._encode_beside(
                    text[start:stop], start, letters[0] if left else "", letters[1] if right else ""
                )
            inside = beside or Tokens(ids[before + 1 : after], spans[before + 1 : after])
            whole.ids.extend([*inside.ids, *ids[after : after + 1]])
            whole.spans.extend([*inside.spans, *spans[after : after + 1]])
        return whole

    def masks_begin_words(self, text: str) -> list[bool]:
        """Return, for each mask in a text, True if it begins a word as the tokenizer spells words.

        Where words are marked by the blank before them, that is only after a blank.
        """
        found = re.finditer(re.escape(self._mask), text)
        longest = len(self._mask)
        return [
            self._begins_word(text[max(0, mask.start() - longest) : mask.start()]) for mask in found
        ]

    def _begins_word(self, before: str) -> bool:
        if not before or before[-1].isspace():
            return True
        if not self._prefix or before.endswith(self._mask):
            return False
        neighbor = before[-1]
        letters = _choose_letters(neighbor, 1, 1)
        letter = next((one for one in letters if one != neighbor and self._spell(one)), neighbor)
        return self._divide(neighbor + letter).get_splits()[-1][0] == self._spell(letter)

    def _is_added(self, token_id: int, text: str) -> bool:
        """Return True if a token is an added one; the model makes the unknown token, too."""
        content = self._added.get(token_id)
        return content is not None and (content != self._unk_token or content == text.strip())

    def _encode_beside(self, part: str, start: int, before: str, after: str) -> Tokens | None:
        """Return the tokens of the part of a text, from `start` on, that masks touch.

        Args:
            before, after: the letters that may take the place of the mask there, if it touches.

        Returns:
            None if none of the letters can.
        """
        first, last = (
            next((one for one in letters if one not in part.lower() and self._spell(one)), "")
            for letters in (before, after)
        )
        if bool(first) != bool(before) or bool(last) != bool(after):
            return None
        is_inside = not first

        def tokenize(piece: str) -> list[Token]:
            nonlocal is_inside
            begins_word, begin, end = is_inside, 0, len(piece)
            if not is_inside:
                gap = self._spelled[first]
                if gap not in piece:  # only the mark of a blank, which belongs to the mask
                    return []
                is_inside, begin = True, piece.index(gap) + len(gap)
            if last and self._spelled[last] in piece[begin:]:
                end = piece.index(self._spelled[last], begin)
            return self._cut(piece, begin, end, begins_word)

        pieces = self._divide(first + part + last)
        pieces.tokenize(tokenize)
        encoding = pieces.to_encoding()
        shift = start - len(first)
        return Tokens(encoding.ids, [(a + shift, b + shift) for a, b in encoding.offsets])

    def _divide(self, text: str) -> PreTokenizedString:
        pieces = PreTokenizedString(text)
        if self._backend.normalizer is not None:
            pieces.normalize(self._backend.normalizer.normalize)
        if self._backend.pre_tokenizer is not None:
            self._backend.pre_tokenizer.pre_tokenize(pieces)
        return pieces

    def _spell(self, letter: str) -> str:
        """Return a letter as the model reads it; nothing if the tokenizer does not keep it."""
        if letter not in self._spelled:
            as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            [(its_bytes, _)] = as_bytes.pre_tokenize_str(letter)
            shown = "".join(piece for piece, *_ in self._divide(letter).get_splits())
            self._spelled[letter] = next((one for one in (letter, its_bytes) if one in shown), "")
        return self._spelled[letter]

    def _cut(self, piece: str, first: int, last: int, begins_word: bool) -> list[Token]:
        """Return the tokens of the characters `first` to `last` of a pre-tokenized word."""
        part = piece[first:last]
        if not part:
            return []
        start, stop = (len(piece[:place].encode()) for place in (first, last))
        if self._vocabulary is not None and not begins_word:
            short = part[: self._longest]
            found, rest = match_greedily(self._prefix + short, self._vocabulary, self._prefix)
            if rest or short != part:
                unknown = self._vocabulary[self._unk_token]
                return [Token(unknown, self._unk_token, (start, stop))]
            tokens: list[Token] = []
            for token in found:
                end = start + len(token.removeprefix(self._prefix).encode())
                tokens.append(Token(self._vocabulary[token], token, (start, end)))
                start = end
            return tokens
        if self._vocabulary is None and self._has_affix:  # of BPE, which depends on the whole word
            tokens = self._model.tokenize(piece)
            return [one for one in tokens if start <= one.offsets[0] and one.offsets[1] <= stop]
        return [
            Token(one.id, one.value, (one.offsets[0] + start, one.offsets[1] + start))
            for one in self._model.tokenize(part)
        ]


def _has_no_blank(text: str, place: int) -> bool:
    return not any(map(str.isspace, text[place - 1 : place + 1]))


def _choose_letters(text: str, start: int, stop: int) -> str:
    """Return the letters that may take the place of the mask from `start` to `stop`."""
    neighbors = text[max(0, start - 1) : start] + text[stop : stop + 1]
    return _IDEOGRAPHS if _IDEOGRAPH.search(neighbors) else _LETTERS
