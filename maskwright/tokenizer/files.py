"""A tokenizer on disk: ``tokenizer.json`` and ``tokenizer_config.json``, as in Hugging Face; its
special tokens, and calls of the library.

The first defines the encoding, the second names the token of each role. Older folders have the
roles in ``special_tokens_map.json``, and the oldest (roberta-base, xlm-roberta-base) only in the
code of their tokenizer class. Language models name ``bos`` and ``eos`` instead of BERT's ``cls``
and ``sep``. A byte-level tokenizer may have no unknown token.

Failures of the `tokenizers` library (a bare Exception, a panic of its Rust code) become a
TokenizerError.

Multiplication is faster for matrices whose sizes are multiples of 64, so vocabulary sizes are; if a
text supports too few tokens, fillers that occur in no text, ``[unused0]``, …, fill the gap.
"""

import re
from collections.abc import Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from maskwright.errors import TokenizerError, show_value
from maskwright.files import JsonObject, read_object
from maskwright.tokenizer.bounds import check_brackets

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

# Entities of transformers' pipelines begin at a word, not at the blank that its token includes.
BLANK_TRIMMING = {"trim_offsets": True, "add_prefix_space": True, "use_regex": False}

_MULTIPLE = 64
_FILLER = re.compile(r"\[unused\d+\]")


def round_up(size: int) -> int:
    """Return the next multiple of 64."""
    return -(-size // _MULTIPLE) * _MULTIPLE


def is_filler(token: str) -> bool:
    """Return True if a token is a filler."""
    return _FILLER.fullmatch(token) is not None


def find_ids(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens of the model in a ``tokenizer.json`` and their ids."""
    vocabulary = description["model"]["vocab"]
    if isinstance(vocabulary, dict):
        return cast(dict[str, int], vocabulary)
    # Unigram has pairs of piece and score.
    return {piece: token_id for token_id, (piece, _) in enumerate(cast(list[Any], vocabulary))}


def add_special_tokens(description: JsonObject, tokens: Iterable[str]) -> JsonObject:
    """Return a ``tokenizer.json`` in which these tokens of its model are special, as transformers
    makes those that only ``tokenizer_config.json`` names.
    """
    added, ids = description["added_tokens"], find_ids(description)
    known = {token["content"] for token in added}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    new = [
        {"id": ids[token], "content": token, **flags, "special": True}
        for token in dict.fromkeys(tokens)
        if token in ids and token not in known
    ]
    return {**description, "added_tokens": [*added, *new]}


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


ROLES = tuple(SPECIAL_TOKENS)
# Written again if a folder has them: transformers reads them, maskwright does not.
OTHER_ROLES = ("bos", "eos")
_ALIASES = {"cls": "bos", "sep": "eos"}
_ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


def find_roles(named: Mapping[str, Any], vocabulary: Container[str]) -> dict[str, str]:
    """Return the token of each role, which `named` has as ``pad_token`` and so on; an unnamed role
    is BERT's or RoBERTa's token, if it exists.

    Without ``unk`` if there is no such token, with ``bos`` and ``eos`` if they are named. A role
    without a token has BERT's token, which is not in the vocabulary.
    """
    roles: dict[str, str] = {}
    for role, token in SPECIAL_TOKENS.items():
        alias = _ALIASES.get(role, role)
        said = _content(named.get(f"{role}_token")) or _content(named.get(f"{alias}_token"))
        conventions = (c for c in (token, _ROBERTA[role]) if c in vocabulary)
        found = said or next(conventions, None)
        if found or role != "unk":
            roles[role] = found or token
    for role in OTHER_ROLES:
        if said := _content(named.get(f"{role}_token")):
            roles[role] = said
    return roles


def _content(token: Any) -> str | None:
    """Return the text of a token that is stored as a string or as an object with properties."""
    if isinstance(token, dict):
        token = cast(JsonObject, token).get("content")
    return token if isinstance(token, str) else None


def _list_extra(named: Mapping[str, Any]) -> list[str]:
    """Return the special tokens that have no role of BERT's, whichever key names them."""
    found: list[Any] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        said: Any = named.get(key)
        found += said.values() if isinstance(said, dict) else said if isinstance(said, list) else []
    return [token for token in map(_content, found) if token]


TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
MAX_TOKENIZER_BYTES = 64 << 20  # twice the largest known file
MIN_LENGTH = 8  # tokens: the smallest input for two texts with their special tokens
SENTENCE_CONFIG = "sentence_*_config.json"  # of sentence-transformers: bert, roberta, …


def read_tokenizer(path: Path) -> tuple[Path, JsonObject, dict[str, str]]:
    """Read the ``tokenizer.json`` at `path` and the token of each role.

    `path` is the file, or the folder of a tokenizer, of a model, of a run, or of prepared data.

    Raises:
        TokenizerError: the file is missing or damaged, or lacks a special token of the settings.
    """
    inside = (path / name / TOKENIZER for name in ("", "tokenizer", "model"))
    file = next(filter(Path.is_file, inside), path)
    if not file.is_file():
        raise TokenizerError(f"{path} holds no {TOKENIZER}. {_suggest(path)}")
    description = _read_object(file)
    named: JsonObject = {}
    for neighbor in (file.with_name("special_tokens_map.json"), file.with_name(CONFIG)):
        if neighbor.is_file():
            said = _read_object(neighbor)
            named.update({name: value for name, value in said.items() if value is not None})
    with calling_library(f"{file} is not a tokenizer"):
        tokens = {*find_ids(description), *(one["content"] for one in description["added_tokens"])}
        roles = find_roles({"unk_token": _find_unknown(description), **named}, tokens)
        extra = _list_extra(named)
        description = add_special_tokens(description, [*roles.values(), *extra])
    if lacking := [token for token in extra if token not in tokens]:
        rule = "transformers numbers them in an order that depends on its version"
        raise TokenizerError(
            f"{file} has no {', '.join(lacking[:5])}, which {CONFIG} names as special tokens; "
            f"{rule}. Load the folder with transformers' AutoTokenizer and call save_pretrained."
        )
    return file, description, roles


def _find_unknown(description: JsonObject) -> str | None:
    model = description["model"]
    place = model.get("unk_id")  # of Unigram
    return model.get("unk_token") if place is None else model["vocab"][place][0]


def read_max_length(folder: Path) -> float | None:
    """Return the model's longest input in tokens, as its folder has it, or None.

    In a folder of sentence-transformers ``max_seq_length``, else ``model_max_length``. It may be
    larger than any model's limit: transformers writes 1e30 if it knows no limit.

    Raises:
        TokenizerError: the value is not a number, or is too small for any input.
    """
    named = [(file, "max_seq_length") for file in sorted(folder.glob(SENTENCE_CONFIG))]
    for file, field in (*named, (folder / CONFIG, "model_max_length")):
        said = _read_object(file).get(field) if file.is_file() else None
        if said is None:
            continue
        if isinstance(said, bool) or not isinstance(said, int | float) or not said >= MIN_LENGTH:
            raise TokenizerError(
                f"{file}: {field} = {show_value(said)} must be a number of tokens, at least "
                f"{MIN_LENGTH}. Correct it, or remove it to use the model's limit."
            )
        return said
    return None


def _suggest(path: Path) -> str:
    if not path.exists():
        download = "hf download OWNER/NAME --include '*token*' --local-dir FOLDER"
        return f"Name a folder. For a tokenizer of the Hugging Face hub, first run: {download}"
    return (
        "Name a tokenizer, a model, a run or prepared data. If the folder has an older format "
        "(vocab.txt, vocab.json, sentencepiece.bpe.model, spiece.model), load it with "
        f"transformers' AutoTokenizer and call save_pretrained, which writes {TOKENIZER}."
    )


def _read_object(file: Path) -> JsonObject:
    try:
        with file.open("rb") as opened:
            check_brackets(opened.read(MAX_TOKENIZER_BYTES))
        return read_object(file, MAX_TOKENIZER_BYTES)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{file} cannot be read: {' '.join(str(error).split())}.") from None
