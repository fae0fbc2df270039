"""Model inputs of one text or two: special tokens, token types and truncation.

The tokenizer's post-processor defines the special tokens, as in transformers: BERT's
``[CLS] A [SEP] B [SEP]`` with types 0 and 1, RoBERTa's ``<s> A </s></s> B </s>``, …
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from maskwright.files import JsonObject, as_mapping
from maskwright.tokenizer.files import BLANK_TRIMMING, calling_library
from maskwright.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class ModelInput:
    """One model input.

    Attributes:
        ids: token ids, special tokens included.
        type_ids: the token type of each.
        first: position in `ids` where the text, or the first of two, begins.
    """

    ids: list[int]
    type_ids: list[int]
    first: int


@dataclass(frozen=True)
class InputTemplate:
    """Special tokens and token types of an input of one text or two.

    Attributes:
        around: ids and types of the special tokens before, between and after the texts.
        text_types: the token type of each text.
        unknown_id: the only token of an input that would have none.
    """

    around: tuple[tuple[tuple[int, int], ...], ...]
    text_types: tuple[int, ...]
    unknown_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, num_texts: int) -> Self:
        """Infer the template from the tokenizer's post-processor."""
        tokens = map(tokenizer.token, tokenizer.ordinary_ids)
        probe = next(token for token in tokens if len(tokenizer.encode(token).ids))
        with calling_library("the tokenizer's post-processor fails"):
            encoding = tokenizer.backend.encode(probe, probe if num_texts == 2 else None)
        around: list[list[tuple[int, int]]] = [[]]
        types: list[int] = []
        for token, kind, text in zip(
            encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True
        ):
            if text is None:
                around[-1].append((token, kind))
            elif text == len(types):
                types.append(kind)
                around.append([])
        return cls(tuple(map(tuple, around)), tuple(types), tokenizer.unk_id)

    @property
    def num_added(self) -> int:
        """The number of special tokens."""
        return sum(map(len, self.around))

    def fill(self, texts: Sequence[Sequence[int]], max_length: int) -> ModelInput:
        """Return the input of these texts, truncated to `max_length` tokens by `cut_texts`."""
        texts = cut_texts(texts, max_length - self.num_added)
        ids = [token for token, _ in self.around[0]]
        types = [kind for _, kind in self.around[0]]
        first = len(ids)
        for text, kind, after in zip(texts, self.text_types, self.around[1:], strict=True):
            ids += [*text, *(token for token, _ in after)]
            types += [*[kind] * len(text), *(kind_after for _, kind_after in after)]
        return ModelInput(ids or [self.unknown_id], types or [0], first)


def cut_texts(texts: Sequence[Sequence[int]], room: int) -> list[Sequence[int]]:
    """Truncate one text or two to `room` tokens in all, the longer one first.

    Equal to the strategy ``longest_first`` of `tokenizers`.
    """
    if len(texts) == 1:
        return [texts[0][:room]]
    short, long = sorted(map(len, texts))
    long = short if short > room else max(short, room - short) if short + long > room else long
    if short + long > room:
        short, long = room // 2, room - room // 2
    first, second = texts
    sizes = (long, short) if len(first) > len(second) else (short, long)
    return [first[: sizes[0]], second[: sizes[1]]]


def list_added_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the special tokens that the tokenizer's post-processor adds to a text."""
    with calling_library("the tokenizer's post-processor fails"):
        return tokenizer.backend.encode("").ids


def wraps_inputs(tokenizer: Tokenizer) -> bool | None:
    """Return True if inputs are [CLS] … [SEP], False if nothing is added, None in other cases."""
    known: dict[tuple[int, ...], bool] = {(): False, (tokenizer.cls_id, tokenizer.sep_id): True}
    return known.get(tuple(list_added_ids(tokenizer)))


def wrap_inputs(tokenizer: Tokenizer, wrap: bool) -> Tokenizer:
    """Return the tokenizer with a post-processor that adds [CLS] and [SEP], or with none."""
    if wraps_inputs(tokenizer) == wrap:
        return tokenizer
    return _with_template(tokenizer, wrap, apart=False)


def wrap_apart(tokenizer: Tokenizer, apart: bool = True) -> Tokenizer:
    """Return the tokenizer with pairs of two whole inputs: ``[CLS] A [SEP] [CLS] B [SEP]``.

    Unless `apart`, a pair is one input: ``[CLS] A [SEP] B [SEP]``.
    """
    return _with_template(tokenizer, bool(wraps_inputs(tokenizer)), apart)


def _with_template(tokenizer: Tokenizer, wrap: bool, apart: bool) -> Tokenizer:
    cls, sep = tokenizer.cls_token, tokenizer.sep_token

    def place(name: str, kind: int) -> list[JsonObject]:
        parts = [("SpecialToken", cls), ("Sequence", name), ("SpecialToken", sep)]
        chosen = parts if wrap else parts[1:2]
        return [{what: {"id": each, "type_id": kind}} for what, each in chosen]

    first, second = place("A", 0), place("B", 1)
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    post_processor: JsonObject = {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *(second if apart else second[1:])],
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]}
            for token, number in ids.items()
        },
    }
    chosen = post_processor if wrap or apart else None
    description = {**tokenizer.description, "post_processor": chosen}
    changed = Tokenizer(description, tokenizer.special_tokens)
    # Otherwise unchanged: data of older tokenizers is recognized by their fingerprint.
    old = as_mapping(tokenizer.description["post_processor"])
    return trim_blanks(changed) if old.get("type") in ("Sequence", "ByteLevel") else changed


def trim_blanks(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer with a post-processor that trims blanks, if its tokens include them."""
    old = tokenizer.description["post_processor"]
    trims = '"trim_offsets": true' in json.dumps(old)
    if trims or '"ByteLevel"' not in json.dumps(tokenizer.description["pre_tokenizer"]):
        return tokenizer
    steps = [{"type": "ByteLevel", **BLANK_TRIMMING}, *([old] if old else [])]
    chosen = {"type": "Sequence", "processors": steps}
    return Tokenizer({**tokenizer.description, "post_processor": chosen}, tokenizer.special_tokens)
