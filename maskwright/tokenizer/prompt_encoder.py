"""Tokens of a text with masks: what touches a mask continues its word, as in training.

The library encodes the text before and after a mask as if each were a whole text. After the mask of
``un[MASK]able`` it therefore begins a word, which training never shows: inside a word WordPiece has
``##able``, and Unigram has no ``▁``. Here the word is pre-tokenized with a letter in place of the
mask, and its parts are tokenized separately. That is exact: where a word has a boundary between
tokens, the tokens on each side do not depend on the other side.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import tokenizers
from tokenizers import PreTokenizedString, Token, pre_tokenizers

from maskwright.tokenizer.vocabulary import match_greedily

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

    def may_differ(self, text: str) -> bool:
        """Return False if the library's tokens of a text are those of `encode`."""
        return self._glued.search(text) is not None

    def encode(self, text: str) -> Tokens:
        """Return the tokens of a text."""
        found = Tokens.of(self._backend, text)
        ids, spans = found
        if self._mask_id not in ids or not self.may_differ(text):
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
        """Return True if a mask after this text begins a word."""
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
        """Return a text normalized and pre-tokenized."""
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
    """Return True if the characters before and after a place are no blanks."""
    return not any(map(str.isspace, text[place - 1 : place + 1]))


def _choose_letters(text: str, start: int, stop: int) -> str:
    """Return the letters that may take the place of the mask from `start` to `stop`."""
    neighbors = text[max(0, start - 1) : start] + text[stop : stop + 1]
    return _IDEOGRAPHS if _IDEOGRAPH.search(neighbors) else _LETTERS
