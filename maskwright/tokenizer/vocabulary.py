"""Tokens of a vocabulary that represent no text: special tokens, and fillers up to a round size.

Multiplication is faster for matrices whose sizes are multiples of 64, so vocabulary sizes are. If a
text supports the requested size but not the next multiple, tokens that occur in no text fill the
gap, as ``[unused0]``, ``[unused1]``, … do in BERT's vocabulary.
"""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, cast

from maskwright.files import JsonObject, as_mapping

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

_MULTIPLE = 64
_FILLER = re.compile(r"\[unused\d+\]")


def round_up(size: int) -> int:
    """Return the next multiple of 64."""
    return -(-size // _MULTIPLE) * _MULTIPLE


def is_filler(token: str) -> bool:
    """Return True if a token is a filler."""
    return _FILLER.fullmatch(token) is not None


def name_fillers(count: int) -> list[str]:
    """Return ``[unused0]`` and so on."""
    return [f"[unused{index}]" for index in range(count)]


def list_tokens(description: Mapping[str, Any]) -> set[str]:
    """Return all tokens of a ``tokenizer.json``, as far as it is valid."""
    added: Any = description.get("added_tokens")
    entries = cast(list[Any], added) if isinstance(added, list) else []
    contents = [as_mapping(entry).get("content") for entry in entries]
    return {token for token in (*_model_tokens(description), *contents) if isinstance(token, str)}


def find_unknown(description: Mapping[str, Any]) -> str | None:
    """Return the unknown token of the model in a ``tokenizer.json``, or None."""
    model, tokens = as_mapping(description.get("model")), _model_tokens(description)
    place = model.get("unk_id")
    found = tokens[place] if isinstance(place, int) and 0 <= place < len(tokens) else None
    found = model.get("unk_token", found)
    return found if isinstance(found, str) and found in list_tokens(description) else None


def add_special_tokens(description: JsonObject, tokens: Iterable[str]) -> JsonObject:
    """Return a ``tokenizer.json`` in which these tokens of its model are special, as transformers
    makes those that only ``tokenizer_config.json`` names.
    """
    added: Any = description.get("added_tokens")
    entries = cast(list[Any], added) if isinstance(added, list) else []
    known = [as_mapping(entry).get("content") for entry in entries]
    missing = [token for token in dict.fromkeys(tokens) if token not in known]
    model_tokens = _model_tokens(description) if missing and isinstance(added, list) else []
    vocabulary = as_mapping(as_mapping(description.get("model")).get("vocab"))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    new: list[JsonObject] = []
    for token in missing:
        if token in model_tokens:
            number = vocabulary.get(token, model_tokens.index(token))
            new.append({"id": number, "content": token, **flags, "special": True})
    return {**description, "added_tokens": [*entries, *new]} if new else description


def _model_tokens(description: Mapping[str, Any]) -> list[Any]:
    vocabulary: Any = as_mapping(description.get("model")).get("vocab")
    if isinstance(vocabulary, dict):
        return list(cast(JsonObject, vocabulary))
    pairs = cast(list[Any], vocabulary) if isinstance(vocabulary, list) else []
    # Unigram has pairs of piece and score; invalid entries stay, so that indices do not change.
    return [cast(list[Any], pair)[0] if isinstance(pair, list) and pair else None for pair in pairs]


def match_greedily(token: str, vocabulary: Container[str], prefix: str) -> tuple[list[str], str]:
    """Return WordPiece's longest matches from the left, and the rest that nothing matches."""
    found: list[str] = []
    rest = token
    while rest and rest != prefix:
        shortest = 1 + len(prefix) * rest.startswith(prefix)
        lengths = range(len(rest), shortest - 1, -1)
        longest = next((n for n in lengths if rest[:n] in vocabulary), 0)
        if longest == 0:
            return found, rest
        found.append(rest[:longest])
        rest = prefix + rest[longest:]
    return found, ""
