"""Numbers in sentences for people."""


def count_noun(number: int, noun: str) -> str:
    """The number with its noun: ``1 document``, ``8,731 documents``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
