"""A stream of texts in parts that fit into memory; within one, texts are sorted by length."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_MOST_TEXTS, _MOST_CHARACTERS = 4096, 4_000_000

Item = TypeVar("Item")


def split_blocks(
    items: Iterable[Item], measure: Callable[[Item], int] = len
) -> Iterator[list[Item]]:
    """Consecutive items, as many as fit; `measure` gives the characters of one."""
    block: list[Item] = []
    characters = 0
    for item in items:
        block.append(item)
        characters += measure(item)
        if len(block) == _MOST_TEXTS or characters >= _MOST_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block
