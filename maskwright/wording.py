"""Numbers and names in sentences for people."""

from collections.abc import Sequence
from pathlib import Path


def count_noun(number: int, noun: str) -> str:
    """The number with its noun: ``1 document``, ``8,731 documents``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def describe_cut(num_cut: int, num_texts: int, longest: int) -> str:
    """Return one line on texts that are longer than the model reads: how many, and the limit."""
    return (
        f"{num_cut:,} of {count_noun(num_texts, 'text')} ({num_cut / num_texts:.1%}) cut: only the "
        f"first {longest:,} tokens are read"
    )


def shorten_names(names: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as it takes to tell them apart."""
    parts = [Path(name).resolve().parts for name in names]
    for count in range(1, max(map(len, parts))):
        short = ["/".join(own[-count:]) for own in parts]
        if len(set(short)) == len(short):
            return short
    return list(names)
