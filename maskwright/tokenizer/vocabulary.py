"""The parts of a vocabulary that are no text: special tokens, and fillers up to a round size.

Matrices whose sides are multiples of 64 multiply faster, so vocabularies have such sizes. When a
text supports the size that was asked for but not the next multiple, tokens that no text contains
fill the gap; BERT's own vocabulary has the same ``[unused0]``, ``[unused1]``, ...
"""

import re

SPECIAL_TOKENS = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}

_MULTIPLE = 64
_FILLER = re.compile(r"\[unused\d+\]")


def round_up(size: int) -> int:
    """The next multiple of 64."""
    return -(-size // _MULTIPLE) * _MULTIPLE


def is_filler(token: str) -> bool:
    """Whether this token only fills up a vocabulary."""
    return _FILLER.fullmatch(token) is not None


def name_fillers(count: int) -> list[str]:
    """``[unused0]`` and so on."""
    return [f"[unused{index}]" for index in range(count)]
