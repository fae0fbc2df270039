"""Which token plays which role: what files say, and what they leave to convention.

``tokenizer_config.json`` names the roles, but the oldest and most used folders (roberta-base,
xlm-roberta-base) leave them to the class that loads them, and tokenizers of language models name
``bos`` and ``eos`` where BERT has ``cls`` and ``sep``. A tokenizer that spells everything in bytes
may have no unknown token.
"""

from collections.abc import Container, Mapping
from typing import Any, cast

from maskwright.tokenizer.vocabulary import SPECIAL_TOKENS

ROLES = tuple(SPECIAL_TOKENS)
# Written again where a folder has them: transformers reads them, maskwright does not.
OTHER_ROLES = ("bos", "eos")
_ALIASES = {"cls": "bos", "sep": "eos"}
_ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


def find_roles(named: Mapping[str, Any], vocabulary: Container[str]) -> dict[str, str]:
    """The token of each role; one that nobody names is BERT's or RoBERTa's, if it exists.

    Args:
        named: the files' ``pad_token`` and so on, as strings or as objects with their content.
        vocabulary: all tokens.

    Returns:
        The five roles, without ``unk`` where there is no such token, and ``bos`` and ``eos`` where
        they are named. Of a role that nothing plays it has BERT's token, which does not exist.
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
    """A token is written as a string or as an object with its content and its properties."""
    if isinstance(token, dict):
        token = cast(dict[str, Any], token).get("content")
    return token if isinstance(token, str) else None
