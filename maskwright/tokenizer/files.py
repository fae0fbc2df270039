"""A tokenizer on disk: ``tokenizer.json`` and ``tokenizer_config.json``, as in Hugging Face.

The first defines the encoding, the second names the token of each role. Older folders have the
roles in ``special_tokens_map.json``, and the oldest (roberta-base, xlm-roberta-base) only in the
code of their tokenizer class. Language models name ``bos`` and ``eos`` instead of BERT's ``cls``
and ``sep``. A byte-level tokenizer may have no unknown token.

A ``tokenizer.json`` is a small, untrusted program: the `tokenizers` library runs every step that it
describes, reports failures by a bare Exception or a panic of its Rust code, and may exhaust memory
where a step replaces one character by many. So failures become a TokenizerError, and the growth of
text is computed before any is encoded.

Multiplication is faster for matrices whose sizes are multiples of 64, so vocabulary sizes are; if a
text supports too few tokens, fillers that occur in no text, ``[unused0]``, …, fill the gap.
"""

import base64
import binascii
import json
import re
from collections.abc import Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, cast

from maskwright.config import MAX_VOCAB_SIZE
from maskwright.errors import TokenizerError, show_value
from maskwright.files import JsonObject, as_mapping, read_object, write_text

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


ROLES = tuple(SPECIAL_TOKENS)
# Written again if a folder has them: transformers reads them, maskwright does not.
OTHER_ROLES = ("bos", "eos")
_ALIASES = {"cls": "bos", "sep": "eos"}
_ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


def find_roles(named: Mapping[str, Any], vocabulary: Container[str]) -> dict[str, str]:
    """Return the token of each role; an unnamed role is BERT's or RoBERTa's token, if it exists.

    Args:
        named: the files' ``pad_token`` and so on, as strings or as objects with their content.
        vocabulary: all tokens.

    Returns:
        The five roles, without ``unk`` if there is no such token, and ``bos`` and ``eos`` if they
        are named. A role without a token has BERT's token, which is not in the vocabulary.
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
_OLDER = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")


def write_tokenizer(
    folder: Path,
    description: Mapping[str, Any],
    special_tokens: Mapping[str, str],
    lowercase: bool,
    max_length: int | None,
    with_types: bool,
) -> None:
    """Write both files; see `Tokenizer.save`."""
    inputs = ["input_ids", *["token_type_ids"] * with_types, "attention_mask"]
    config: JsonObject = {
        # This class uses tokenizer.json unchanged; BertTokenizer would build its own pipeline.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        "clean_up_tokenization_spaces": False,
        "model_input_names": inputs,
        **{f"{role}_token": token for role, token in special_tokens.items()},
    }
    if max_length is not None:
        config["model_max_length"] = max_length
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / TOKENIZER, json.dumps(description, ensure_ascii=False, indent=1))
    write_text(folder / CONFIG, json.dumps(config, ensure_ascii=False, indent=2) + "\n")


def read_tokenizer(path: Path) -> tuple[Path, JsonObject, dict[str, str]]:
    """Read the ``tokenizer.json`` at `path` and the token of each role.

    `path` is the file, or the folder of a tokenizer, of a model, of a run, or of prepared data.

    Raises:
        TokenizerError: the file is missing, or it is not a JSON object.
    """
    inside = (path / name / TOKENIZER for name in ("", "tokenizer", "model"))
    file = next(filter(Path.is_file, inside), path)
    if not file.is_file():
        raise TokenizerError(f"{path} holds no {TOKENIZER}. {_suggest(path)}")
    description = _read_object(file)
    named: JsonObject = {"unk_token": find_unknown(description)}
    for neighbor in (file.with_name("special_tokens_map.json"), file.with_name(CONFIG)):
        if neighbor.is_file():
            said = _read_object(neighbor)
            named.update({name: value for name, value in said.items() if value is not None})
    vocabulary = list_tokens(description)
    extra = _list_extra(named)
    lacking = [token for token in extra if token not in vocabulary]
    if lacking:
        rule = "transformers numbers them in an order that depends on its version"
        raise TokenizerError(
            f"{file} has no {', '.join(lacking[:5])}, which {CONFIG} names as special tokens; "
            f"{rule}. Load the folder with transformers' AutoTokenizer and call save_pretrained."
        )
    roles = find_roles(named, vocabulary)
    return file, add_special_tokens(description, [*roles.values(), *extra]), roles


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
    older = next((name for name in _OLDER if (path / name).is_file()), None)
    remedy = f"with transformers' AutoTokenizer and call save_pretrained, which writes {TOKENIZER}."
    if older is not None:
        return f"It has {older}, an older format. Load the folder {remedy}"
    return (
        "Name a tokenizer, a model, a run or prepared data. If a published model has only an older "
        f"format, load it {remedy} Save the model into that folder, too."
    )


def _read_object(file: Path) -> JsonObject:
    try:
        return read_object(file, MAX_TOKENIZER_BYTES)
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{file} cannot be read: {' '.join(str(error).split())}.") from None
