"""Whether inputs are [CLS] … [SEP]: tokenizer.json says it once, for us and for transformers."""

from typing import Any

from maskwright.tokenizer.library import calling_library
from maskwright.tokenizer.tokenizer import Tokenizer


def list_added_ids(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that the tokenizer's own post-processor adds to a text."""
    with calling_library("the tokenizer's post-processor fails"):
        return tokenizer.backend.encode("").ids


def wraps_inputs(tokenizer: Tokenizer) -> bool | None:
    """Whether it makes [CLS] … [SEP] of a text; None where it adds something else."""
    known = {(): False, (tokenizer.cls_id, tokenizer.sep_id): True}
    return known.get(tuple(list_added_ids(tokenizer)))


def wrap_inputs(tokenizer: Tokenizer, wrap: bool) -> Tokenizer:
    """The tokenizer with a post-processor that adds [CLS] and [SEP], or with none."""
    if wraps_inputs(tokenizer) == wrap:
        return tokenizer
    post_processor = _template(tokenizer) if wrap else None
    description = {**tokenizer.description, "post_processor": post_processor}
    return Tokenizer(description, tokenizer.special_tokens)


def _template(tokenizer: Tokenizer) -> dict[str, Any]:
    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    cls, sep = tokenizer.cls_token, tokenizer.sep_token
    single = [special(cls, 0), text("A", 0), special(sep, 0)]
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special(sep, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]}
            for token, number in ids.items()
        },
    }
