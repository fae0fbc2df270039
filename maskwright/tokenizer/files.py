"""A tokenizer on disk: ``tokenizer.json`` and ``tokenizer_config.json``, as in Hugging Face.

The first defines the encoding, the second names the token of each role. Older folders have the
roles in ``special_tokens_map.json``, and the oldest (roberta-base, xlm-roberta-base) only in the
code of their tokenizer class. Language models name ``bos`` and ``eos`` instead of BERT's ``cls``
and ``sep``. A byte-level tokenizer may have no unknown token.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, cast

from maskwright.errors import TokenizerError, show_value
from maskwright.files import JsonObject, read_object, write_text
from maskwright.tokenizer.vocabulary import (
    SPECIAL_TOKENS,
    add_special_tokens,
    find_unknown,
    list_tokens,
)

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
SHORTEST = 8  # tokens: the smallest input for two texts with their special tokens
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
        if isinstance(said, bool) or not isinstance(said, int | float) or not said >= SHORTEST:
            raise TokenizerError(
                f"{file}: {field} = {show_value(said)} must be a number of tokens, at least "
                f"{SHORTEST}. Correct it, or remove it to use the model's limit."
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
