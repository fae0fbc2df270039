"""Safe use of the `tokenizers` library: a ``tokenizer.json`` is a small, untrusted program.

The library runs every step that the file describes. It reports failures by a bare Exception, or by
a panic of its Rust code, which is not even an Exception; and a step that replaces one character by
many may exhaust memory. So this module converts its failures to TokenizerError, and computes the
growth of text by a file's steps before any text is encoded.
"""

import base64
import binascii
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, cast

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import TokenizerError, show_value
from maskwright.files import JsonObject, as_mapping

# BERT's WordPiece limits words to 100 characters; time grows with the cube of the limit.
MAX_WORD_CHARACTERS = 1_000
# The largest growth of a text. ALBERT's normalization can turn one character into 1188.
MAX_GROWTH = 2_000

_UNICODE_GROWTH = 18  # NFKC turns U+FDFA into 18 characters
_COMPATIBLE = ("NFKC", "NFKD")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@contextmanager
def calling_library(what: str) -> Generator[None]:
    """Convert every failure of the library to a TokenizerError that begins with `what`."""
    try:
        yield
    except BaseException as error:  # of Rust, too, whose PanicException is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {' '.join(str(error).split()).rstrip('.')}.") from None


def make_valid(text: str) -> str:
    """Return `text` as valid Unicode, which the library requires: surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def check_ids(description: Mapping[str, Any]) -> None:
    """Raise TokenizerError if an id is larger than any model's embedding table.

    Call it before the library loads the ids, which allocates memory up to the largest id.
    """
    ids = [*as_mapping(as_mapping(description.get("model")).get("vocab")).values()]
    added = description.get("added_tokens")
    if isinstance(added, list):
        ids += [as_mapping(token).get("id") for token in cast(list[Any], added)]
    largest = max((i for i in ids if isinstance(i, int)), default=0)
    if largest >= MAX_VOCAB_SIZE:
        raise TokenizerError(
            f"has a token with the id {show_value(largest)}; ids must be below {MAX_VOCAB_SIZE}."
        )


def hide_special_tokens(description: Mapping[str, Any]) -> JsonObject:
    """Return a ``tokenizer.json`` whose model does not match special tokens in text; ids stay.

    If the pre-tokenizer does not separate punctuation, the model would match ``<mask>`` in its
    vocabulary. BPE only produces tokens that its merges make.
    """
    model: JsonObject = description["model"]
    if model["type"] == "BPE":
        return dict(description)
    is_mapping = isinstance(model["vocab"], dict)
    pairs = cast(list[Any], list(model["vocab"].items()) if is_mapping else model["vocab"])
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    special.discard(model.get("unk_token"))
    hidden: list[Any] = [["\0" + token if token in special else token, n] for token, n in pairs]
    present = special.intersection(token for token, _ in pairs)
    # The library numbers added tokens that its model does not have, in their order.
    kept = [token for token in description["added_tokens"] if token["content"] not in present]
    vocabulary = dict(hidden) if is_mapping else hidden
    return {**description, "added_tokens": kept, "model": {**model, "vocab": vocabulary}}


def measure_growth(description: Mapping[str, Any]) -> int:
    """Return the most characters that the steps of a ``tokenizer.json`` may make of one.

    Raises:
        TokenizerError: the growth is above `MAX_GROWTH`, or words may be so long that encoding
            takes too much time.
    """
    longest = description["model"].get("max_input_chars_per_word") or 0
    if longest > MAX_WORD_CHARACTERS:
        raise TokenizerError(
            f"has max_input_chars_per_word = {longest}, more than {MAX_WORD_CHARACTERS}."
        )
    growths = (_growth(description[name]) for name in ("normalizer", "pre_tokenizer", "decoder"))
    growth = max(growths)
    if growth > MAX_GROWTH:
        raise TokenizerError(
            f"turns one character into up to {growth} characters, more than {MAX_GROWTH}: text"
            " would take too much memory. Use another tokenizer."
        )
    return growth


def _growth(step: Mapping[str, Any] | None) -> int:
    if step is None:
        return 1
    for name in ("normalizers", "pretokenizers", "decoders"):
        if name in step:
            return prod(_growth(inner) for inner in cast(list[JsonObject], step[name]))
    kind = step["type"]
    if kind == "Replace":
        replaced, length = step["pattern"].get("String"), len(step["content"])
        # A regular expression may match before every character.
        return (-(-length // len(replaced)) or 1) if replaced else 1 + length
    if kind == "Prepend":
        return 1 + len(step["prepend"])
    if kind == "Precompiled":
        return _charsmap_growth(step["precompiled_charsmap"])
    return _UNICODE_GROWTH if kind in _COMPATIBLE else 1


def _charsmap_growth(encoded: str) -> int:
    """Return the longest replacement in SentencePiece's table: trie size (uint32), trie,
    replacements ended by NUL.
    """
    try:
        table = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        raise TokenizerError("has a precompiled_charsmap that is not base64.") from None
    replacements = table[4 + int.from_bytes(table[:4], "little") :]
    return max(map(len, replacements.split(b"\0")), default=1) or 1
