"""Fast encoding: text is cut into parts that encode independently, and each part is encoded once.

Most of a text consists of few different words. If a tokenizer never uses context across a blank,
encoding the chunks between blanks is the same as encoding the whole text, and a dictionary from
chunk to tokens does nearly all the work. A new chunk ("snails.") is first divided into parts that
are mostly known ("snails", "."). `choose_cutting` decides from the tokenizer's description whether
and where its text may be cut; other tokenizers get the whole text.

Texts with masks are encoded as in training: what touches a mask continues its word. The library
encodes the text after a mask as a text of its own, so the rest of ``[MASK]able`` begins a word,
which training never shows: inside a word WordPiece has ``##able``, and Unigram has no ``▁``.
"""

import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any, NamedTuple, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import PreTokenizedString, Token

from maskwright.files import JsonObject
from maskwright.tokenizer.files import calling_library
from maskwright.tokenizer.words import (
    ACCENTS,
    BYTE_WORDS,
    INVISIBLE,
    TOKEN_WORDS,
    WORD_BREAK,
    find_word_starts,
    match_greedily,
)

WORD_START = 1 << 31  # the high bit of a packed token; the other bits are its id

# A longer run without a blank is cut, because the library needs about 100 bytes of memory per
# character. BERT's WordPiece encodes every word of more than 100 characters as [UNK] anyway.
MAX_CHUNK_CHARACTERS = 16_384

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
    parts = [part for part in parts if part.get("pattern") != {"Regex": TOKEN_WORDS}]
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

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        cutting: Cutting | None,
        longest: int,
        unk_id: int = -1,
        tokens_are_words: bool = False,
    ) -> None:
        """Create an encoder.

        Args:
            backend: the library's tokenizer.
            cutting: exact rules for cutting a text, if there are any.
            longest: the most characters that may be encoded at once.
            unk_id: the id of the unknown token; -1 if there is none.
            tokens_are_words: every token begins a word.
        """
        self._backend = backend
        self._tokens_are_words = tokens_are_words
        self._cutting = cutting
        self._unk_id = unk_id
        self._longest = min(longest, MAX_CHUNK_CHARACTERS) if cutting else longest
        self._known: dict[str, bytes] = {}
        self._lost: dict[str, list[int]] = {}  # of chunks with unknown tokens
        self._bytes = 0

    def encode(self, text: str) -> NDArray[np.uint32]:
        """Return the packed tokens of `text`, without special tokens."""
        if self._cutting is None:
            return np.frombuffer(self._encode_long(text)[0], np.uint32)
        known, _, chunks = self._look_up(text, self._cutting)
        return np.frombuffer(b"".join(map(known.__getitem__, chunks)), np.uint32)

    def find_lost(self, text: str) -> list[int]:
        """Return the number of characters, without blanks, of each unknown token of a text."""
        if self._cutting is None:
            return self._encode_long(text)[1]
        _, lost, chunks = self._look_up(text, self._cutting)
        return [size for chunk in chunks if chunk in lost for size in lost[chunk]]

    def _look_up(
        self, text: str, cutting: Cutting
    ) -> tuple[dict[str, bytes], dict[str, list[int]], list[str]]:
        """Return the two dictionaries, which know the chunks of a text, and these chunks."""
        chunks = cutting.split(text)
        if self._bytes > _CACHE_BYTES:
            self._known, self._lost, self._bytes = {}, {}, 0
        known, lost = self._known, self._lost  # another thread may replace them meanwhile
        new = set(filterfalse(known.__contains__, chunks))
        if new:
            self._learn(known, lost, {chunk: cutting.divide(chunk) for chunk in new})
        return known, lost, chunks

    def _learn(
        self,
        known: dict[str, bytes],
        lost: dict[str, list[int]],
        divided: dict[str, list[str]],
    ) -> None:
        parts = {part for parts in divided.values() for part in parts if part not in known}
        short = [part for part in parts if len(part) <= self._longest]
        with calling_library("the tokenizer fails on this text"):
            encodings = self._backend.encode_batch(short, add_special_tokens=False)
        for part, encoding in zip(short, encodings, strict=True):
            if sizes := self._measure_unknown(part, encoding):
                lost[part] = sizes
            known[part] = pack_encoding(part, encoding, self._tokens_are_words)
        for part in parts - known.keys() if len(short) < len(parts) else ():
            packed, sizes = self._encode_long(part)
            if sizes:
                lost[part] = sizes
            known[part] = packed
        for chunk, its_parts in divided.items():
            if len(its_parts) > 1:
                if sizes := [size for part in its_parts for size in lost.get(part, ())]:
                    lost[chunk] = sizes
                known[chunk] = b"".join([known[part] for part in its_parts])
        self._bytes += sum(_ENTRY_BYTES + 2 * len(chunk) for chunk in (*parts, *divided))

    def _measure_unknown(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        """Return the number of characters, without blanks, of each unknown token."""
        if self._unk_id not in encoding.ids:
            return []
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        lost = (text[slice(*span)] for one, span in pairs if one == self._unk_id)
        return [sum(not character.isspace() for character in part) for part in lost]

    def _encode_long(self, part: str) -> tuple[bytes, list[int]]:
        size, packed, lost = self._longest, bytearray(), list[int]()
        for start in range(0, len(part), size):
            piece = part[start : start + size]
            with calling_library("the tokenizer fails on this text"):
                # A batch of one, because `encode` holds the GIL.
                [encoding] = self._backend.encode_batch([piece], add_special_tokens=False)
            packed += pack_encoding(piece, encoding, self._tokens_are_words)
            lost += self._measure_unknown(piece, encoding)
        return bytes(packed), lost


def pack_encoding(
    text: str, encoding: tokenizers.Encoding, tokens_are_words: bool = False
) -> bytes:
    """Return the library's encoding of `text` as the bytes of packed tokens."""
    packed = array("I", encoding.ids)
    if tokens_are_words:
        return (np.array(packed, np.uint32) | np.uint32(WORD_START)).tobytes()
    if text.isascii() and text.isalnum():
        starts = [True] * bool(packed)  # a plain word: only its first token begins a word
    else:
        starts = find_word_starts(text, encoding.offsets)
    for index, is_start in enumerate(starts):
        if is_start:
            packed[index] |= WORD_START
    return packed.tobytes()


_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_BLANKS = ("▁", "Ġ")  # the marks of a blank before a word, which some tokenizers put before a text


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
    """Encoder that recognizes special tokens in text; its tokenizer has no post-processor."""

    def __init__(
        self, backend: tokenizers.Tokenizer, description: Mapping[str, Any], mask: str
    ) -> None:
        model = description["model"]
        self._backend, self._mask, self._mask_id = backend, mask, backend.token_to_id(mask)
        special = "|".join(re.escape(one["content"]) for one in description["added_tokens"])
        glued = rf"{re.escape(mask)}(?P<rest>(?!\s)(?:(?!{special}).)+)"
        self._glued = re.compile(glued, re.IGNORECASE | re.DOTALL)
        self._model: Any = backend.model
        is_wordpiece = model["type"] == "WordPiece"
        self._prefix: str = model["continuing_subword_prefix"] if is_wordpiece else ""
        self._unk_token: str = model.get("unk_token") or ""
        self._longest: int = model.get("max_input_chars_per_word") or 0
        self._vocabulary = backend.get_vocab(with_added_tokens=False) if is_wordpiece else {}

    def encode(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        ids, spans = found = Tokens.of(self._backend, text)
        for glued in self._glued.finditer(text):
            start, stop = glued.span("rest")
            inside = [n for n, (begin, _) in enumerate(spans) if start <= begin < stop]
            if inside and ids[: inside[0]][-1:] == [self._mask_id]:  # not only spelled like it
                part = text[start : spans[inside[-1]][1]]
                rest = self._continue(part, text[: glued.start()][-1:])
                replaced = slice(inside[0], inside[-1] + 1)
                ids[replaced] = rest.ids
                spans[replaced] = [(begin + start, end + start) for begin, end in rest.offsets]
        return found

    def masks_begin_words(self, text: str) -> list[bool]:
        """Return, for each mask in a text, True if it begins a word as the tokenizer spells words.

        Where words are marked by the blank before them, that is only after a blank.
        """
        masks = re.finditer(re.escape(self._mask), text)
        return [self._begins_word(text[: mask.start()]) for mask in masks]

    def _begins_word(self, before: str) -> bool:
        if not before or before[-1].isspace():
            return True
        is_inside = not self._prefix or before.endswith(self._mask)
        return not is_inside and self._is_alone(before[-1])

    def _is_alone(self, character: str) -> bool:
        """Return True if a character is a word of its own, such as punctuation."""
        return len(self._divide("q" + character).get_splits()) > 1

    def _continue(self, part: str, before: str) -> tokenizers.Encoding:
        """Return the tokens of the text from a mask to the next special token.

        Args:
            part: the text.
            before: the character before the mask. A mask beside an ideograph is taken for one,
                because WordPiece makes each a word.
        """
        pieces = self._divide(part)
        first = pieces.get_splits("original", "char")[:1]
        # Characters that normalization drops, and a blank, may be before the first piece.
        is_first = not any(map(str.isspace, part[: first[0][1][0]] if first else part))

        def tokenize(piece: str) -> list[Token]:
            nonlocal is_first
            was_first, is_first = is_first, False
            if not was_first:
                return self._model.tokenize(piece)
            if self._prefix and not (self._is_alone(part[0]) or _IDEOGRAPH.match(before)):
                return self._continue_word(piece)
            mark = piece[:1] if piece[:1] in _BLANKS and piece[:1] != part[0] else ""
            tokens = self._model.tokenize(piece.removeprefix(mark))
            return [_shift(token, len(mark.encode())) for token in tokens]

        pieces.tokenize(tokenize)
        return pieces.to_encoding()

    def _continue_word(self, piece: str) -> list[Token]:
        """Return WordPiece's tokens of the rest of a word."""
        found, rest = match_greedily(
            self._prefix + piece[: self._longest], self._vocabulary, self._prefix
        )
        if rest or len(piece) > self._longest:
            stop = len(piece.encode())
            return [Token(self._vocabulary[self._unk_token], self._unk_token, (0, stop))]
        tokens, start = list[Token](), 0
        for token in found:
            end = start + len(token.removeprefix(self._prefix).encode())
            tokens.append(Token(self._vocabulary[token], token, (start, end)))
            start = end
        return tokens

    def _divide(self, text: str) -> PreTokenizedString:
        pieces = PreTokenizedString(text)
        if self._backend.normalizer is not None:
            pieces.normalize(self._backend.normalizer.normalize)
        if self._backend.pre_tokenizer is not None:
            self._backend.pre_tokenizer.pre_tokenize(pieces)
        return pieces


def _shift(token: Token, num_bytes: int) -> Token:
    start, stop = token.offsets
    return Token(token.id, token.value, (start + num_bytes, stop + num_bytes))
