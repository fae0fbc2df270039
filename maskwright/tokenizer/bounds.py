"""Bounds of what a ``tokenizer.json`` may do, checked before the library sees it.

The file is a small program, which may come from a stranger: its steps replace and cut text, search
with regular expressions, and its tables fill memory. Each step and table has a limit that published
tokenizers are far from, so that the time and memory of a text are at most a constant for each
character. What the library itself refuses is left to it.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, cast

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.files import as_mapping
from maskwright.tokenizer.regex_cost import Cost, check_pattern

MAX_WHOLE_CHARACTERS = 2_000_000  # of a text that is encoded at once
MAX_QUADRATIC_CHARACTERS = 4_000  # the same, if a regular expression may be quadratic
MAX_GROWTH = 16  # of a text by replacing and prepending
# NFKC turns U+FDFA into 18 characters, as do the tables of SentencePiece.
MAX_TABLE_GROWTH = 18
MAX_STEPS, MAX_PATTERNS = 64, 32
MAX_TOKENS = 2_000_000  # twice the largest known vocabulary
MAX_ADDED_TOKENS = 50_000
MAX_TOKEN_CHARACTERS, MAX_PIECE_CHARACTERS = 4_096, 128  # a piece is a token of Unigram
MAX_TABLE_CHARACTERS = 32_000_000  # of all tokens
MAX_TRIE_NODES = 4_000_000  # of Unigram: different beginnings of pieces, some hundred bytes each
MAX_WORD_CHARACTERS = 256  # of WordPiece, whose time is quadratic in the word
MAX_AFFIX_CHARACTERS = 32
MAX_TEMPLATE_PARTS, MAX_TEMPLATE_IDS = 32, 32
MAX_NESTED = 16
MAX_BRACKETS = 4_000_000  # in the file: objects and lists, which fill memory

_PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}
_DOUBLING = ("Metaspace", "ByteLevel")  # each but the first of its kind


def check_brackets(content: bytes) -> None:
    """Raise ValueError if a JSON file has so many lists and objects that they fill memory."""
    count = content.count(b"[") + content.count(b"{")
    if count > MAX_BRACKETS:
        raise ValueError(f"it has {count:,} lists and objects, more than {MAX_BRACKETS:,}")


def check_bounds(description: Mapping[str, Any]) -> int:
    """Return the most characters of a text that may be encoded at once.

    Args:
        description: a parsed ``tokenizer.json``, which may be wrong in any way.

    Raises:
        ValueError: the tokenizer may take too much time or memory.
    """
    _check_model(as_mapping(description.get("model")))
    _check_added(description.get("added_tokens"))
    steps = {field: list(_list_steps(description.get(field), field)) for field in _PARTS}
    if (count := sum(map(len, steps.values()))) > MAX_STEPS:
        raise ValueError(f"it has {count} steps, more than {MAX_STEPS}")
    costs = [_check_regex(place, step) for found in steps.values() for place, step in found]
    costs = [cost for cost in costs if cost]
    if len(costs) > MAX_PATTERNS:
        raise ValueError(f"it has {len(costs)} regular expressions, more than {MAX_PATTERNS}")
    for place, step in steps["post_processor"]:
        _check_template(place, step)
    _check_growth(steps["decoder"])
    growth = _check_growth([*steps["normalizer"], *steps["pre_tokenizer"]])
    if any(cost.is_quadratic for cost in costs):
        return MAX_QUADRATIC_CHARACTERS // growth
    return MAX_WHOLE_CHARACTERS // growth


def _as_list(value: Any) -> list[Any]:
    """Return a value of JSON if it is a list, else an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def _list_steps(step: Any, place: str, depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each step of a field with its place, such as ``normalizer.normalizers[2]``."""
    if depth > MAX_NESTED:
        raise ValueError(f"{place} is nested deeper than {MAX_NESTED}")
    step = as_mapping(step)
    if step:
        yield place, step
    for name in _PARTS.values():
        for number, part in enumerate(_as_list(step.get(name))):
            yield from _list_steps(part, f"{place}.{name}[{number}]", depth + 1)


def _check_model(model: Mapping[str, Any]) -> None:
    entries = model.get("vocab")
    is_mapping = isinstance(entries, dict)
    named = as_mapping(entries)
    # Unigram has pairs of piece and score.
    pieces = [_as_list(pair)[:1] for pair in _as_list(entries)]
    tokens = [*named, *(one for pair in pieces for one in pair)]
    count = max(len(tokens), len(_as_list(model.get("merges"))))
    if count > MAX_TOKENS:
        raise ValueError(f"it has {count:,} tokens, more than {MAX_TOKENS:,}")
    _check_ids([*named.values()])
    lengths = [len(token) for token in tokens if isinstance(token, str)]
    limit = MAX_TOKEN_CHARACTERS if is_mapping else MAX_PIECE_CHARACTERS
    if max(lengths, default=0) > limit:
        raise ValueError(f"it has a token of {max(lengths):,} characters, more than {limit:,}")
    if sum(lengths) > MAX_TABLE_CHARACTERS:
        raise ValueError(f"its tokens have more than {MAX_TABLE_CHARACTERS:,} characters")
    if not is_mapping and 4 * sum(lengths) > MAX_TRIE_NODES:
        _check_trie([token for token in tokens if isinstance(token, str)])
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORD_CHARACTERS:
        rule = f"more than {MAX_WORD_CHARACTERS}"
        raise ValueError(f"model.max_input_chars_per_word = {longest} is {rule}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        affix = model.get(name)
        if isinstance(affix, str) and len(affix) > MAX_AFFIX_CHARACTERS:
            rule = f"has {len(affix):,} characters, more than {MAX_AFFIX_CHARACTERS}"
            raise ValueError(f"model.{name} {rule}")


def _check_trie(pieces: list[str]) -> None:
    before, count = b"", 0
    for piece in sorted(piece.encode("utf-8", "replace") for piece in pieces):
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(before, piece, strict=False))
        count += len(piece) - sum(1 for _ in shared)
        before = piece
    if count > MAX_TRIE_NODES:
        raise ValueError(f"its pieces have more than {MAX_TRIE_NODES:,} different beginnings")


def _check_ids(ids: list[Any]) -> None:
    """Raise ValueError for an id that no table has: the library counts to it."""
    largest = max((one for one in ids if isinstance(one, int)), default=0)
    if largest >= MAX_VOCAB_SIZE:
        raise ValueError(f"it has a token with the id {largest}; ids are below {MAX_VOCAB_SIZE}")


def _check_added(added: Any) -> None:
    entries = [as_mapping(one) for one in _as_list(added)]
    if len(entries) > MAX_ADDED_TOKENS:
        raise ValueError(f"it has {len(entries):,} added tokens, more than {MAX_ADDED_TOKENS:,}")
    _check_ids([entry.get("id") for entry in entries])
    contents = [entry.get("content") for entry in entries]
    longest = max((len(content) for content in contents if isinstance(content, str)), default=0)
    if longest > MAX_TOKEN_CHARACTERS:
        rule = f"more than {MAX_TOKEN_CHARACTERS:,}"
        raise ValueError(f"it has an added token of {longest:,} characters, {rule}")


def _check_regex(place: str, step: Mapping[str, Any]) -> Cost | None:
    """Return the cost of a step's regular expression, if it has one."""
    pattern = as_mapping(step.get("pattern")).get("Regex")
    if not isinstance(pattern, str):
        return None
    try:
        return check_pattern(pattern)
    except ValueError as error:
        raise ValueError(
            f"{place}.pattern takes too much time, or cannot be checked: {error}"
        ) from None


def _check_template(place: str, step: Mapping[str, Any]) -> None:
    for name in ("single", "pair"):
        parts = step.get(name)
        count = parts.count("$") if isinstance(parts, str) else len(_as_list(parts))
        if count > MAX_TEMPLATE_PARTS:
            raise ValueError(f"{place}.{name} has more than {MAX_TEMPLATE_PARTS} parts")
    for token in as_mapping(step.get("special_tokens")).values():
        if len(_as_list(as_mapping(token).get("ids"))) > MAX_TEMPLATE_IDS:
            raise ValueError(f"{place} inserts more than {MAX_TEMPLATE_IDS} tokens for one")


def _check_growth(steps: list[tuple[str, Mapping[str, Any]]]) -> int:
    """Return how many times longer steps make a text, beyond what Unicode and bytes need."""
    growth, kinds = 1, list[Any]()
    for place, step in steps:
        kind = step.get("type")
        if kind in _DOUBLING:
            own = 2 if kind in kinds else 1
        elif kind == "Precompiled":
            own = _measure_table(place, step.get("precompiled_charsmap"))
            own = own if kind in kinds else 1
        else:
            own = _measure_replacement(step)
        kinds.append(kind)
        growth *= own
        if growth > MAX_GROWTH:
            raise ValueError(
                f"its steps up to {place} make a text {growth:,} times longer; the limit is "
                f"{MAX_GROWTH}"
            )
    return growth


def _measure_replacement(step: Mapping[str, Any]) -> int:
    content, prefix = step.get("content"), step.get("prepend")
    if step.get("type") == "Prepend" and isinstance(prefix, str):
        # The usual mark before a text counts as nothing: it is one character a text.
        return max(1, len(prefix))
    if step.get("type") != "Replace" or not isinstance(content, str):
        return 1
    pattern = as_mapping(step.get("pattern"))
    replaced = pattern.get("String")
    least = len(replaced) if isinstance(replaced, str) else 0
    if isinstance(pattern.get("Regex"), str):
        least = check_pattern(pattern["Regex"]).least
    # What matches nothing is replaced before every character.
    return max(1, -(-len(content) // least)) if least else 1 + len(content)


def _measure_table(place: str, encoded: Any) -> int:
    """Return the longest replacement in SentencePiece's table: the size of the trie (uint32), the
    trie, replacements ended by NUL.
    """
    try:
        table = base64.b64decode(encoded) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        return 1  # the library refuses it
    replacements = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    longest = max(len(one.decode(errors="replace")) for one in replacements)
    if longest > MAX_TABLE_GROWTH:
        rule = f"turns a character into {longest:,}, more than {MAX_TABLE_GROWTH}"
        raise ValueError(f"{place}.precompiled_charsmap {rule}")
    return max(1, longest)
