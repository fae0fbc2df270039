"""A bound of the time that a regular expression of a tokenizer takes.

Oniguruma, the library's engine, tries again with less where a later part fails. It gives up after
ten million attempts at one place, but a search begins at every place of a text: an expression that
takes a few million attempts at each place takes hours for one text, without ever giving up. So:

1. Repetitions without end (or of more than `_LONG`) inside each other, or one after the other, that
   may take the same characters, are refused if both are tried again.
2. With one that is tried again, time may be quadratic in the text: `Cost.is_quadratic`, for which
   texts are limited. It is linear if another branch takes the whole run, as in
   ``\\s+x|\\s+``, for the search then goes on behind it. So are the patterns of GPT-2, Llama 3 and
   others.
3. Repetitions with an end, and choices, may be combined in at most `MAX_WAYS` ways.
"""

from dataclasses import dataclass
from functools import reduce
from math import prod

from maskwright.tokenizer.regex_syntax import (
    Chars,
    Choice,
    Look,
    Node,
    Parser,
    Repeat,
    Sequence,
)

MAX_PATTERN_CHARACTERS = 4_096
MAX_WAYS = 1_000
MAX_SIZE = 20_000  # nodes, with repetitions written out: the library's program
_LONG = 100


@dataclass(frozen=True, slots=True)
class _Continuation:
    """What follows a node: the characters that it may begin with, and whether it may fail."""

    first: int
    may_fail: bool


_END = _Continuation(0, False)


@dataclass(frozen=True, slots=True)
class Cost:
    """What is known of a regular expression: the fewest characters of a match, and whether time may
    be quadratic in the text.
    """

    least: int
    is_quadratic: bool


def check_pattern(pattern: str) -> Cost:
    """Return the cost of a regular expression.

    Raises:
        ValueError: time may grow faster than the square of the text, or the syntax is unknown.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"it has more than {MAX_PATTERN_CHARACTERS:,} characters")
    tree = Parser(pattern).parse()
    if _measure_size(tree) > MAX_SIZE:
        raise ValueError("its repetitions are too many to write out")
    branches = tree.branches if isinstance(tree, Choice) else (tree,)
    again = [_find_again(branch, _END) for branch in branches]
    takes_all = 0  # what a branch takes without an end, and without trying again
    for branch, mask in zip(branches, again, strict=True):
        takes_all |= 0 if mask else _find_runs(branch)
    if _count_ways(tree) > MAX_WAYS:
        raise ValueError("it may match in too many ways")
    is_quadratic = any(
        mask == ~0 or mask & _find_first(branch) & ~takes_all
        for branch, mask in zip(branches, again, strict=True)
    )
    return Cost(_find_least(tree), is_quadratic)


def _is_endless(node: Node) -> bool:
    return isinstance(node, Repeat) and (node.most is None or node.most > _LONG)


def _list_children(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence(parts):
            return parts
        case Choice(branches):
            return branches
        case Repeat(body) | Look(body):
            return (body,)
        case _:
            return ()


def _measure_size(node: Node) -> int:
    size = 1 + sum(map(_measure_size, _list_children(node)))
    return size * max(node.least, node.most or 1) if isinstance(node, Repeat) else size


def _has_endless(node: Node) -> bool:
    return _is_endless(node) or any(map(_has_endless, _list_children(node)))


def _find_least(node: Node) -> int:
    match node:
        case Chars():
            return 1
        case Sequence(parts):
            return sum(map(_find_least, parts))
        case Choice(branches):
            return min(map(_find_least, branches))
        case Repeat(body, least):
            return least * _find_least(body)
        case Look():
            return 0


def _find_all(node: Node) -> int:
    """Return the characters that a node may take."""
    if isinstance(node, Chars):
        return node.mask
    mask = 0
    for child in () if isinstance(node, Look) else _list_children(node):
        mask |= _find_all(child)
    return mask


def _find_first(node: Node) -> int:
    """Return the characters that what a node takes may begin with."""
    if not isinstance(node, Sequence):
        return _find_all(node) if isinstance(node, Chars) else _join_first(node)
    mask = 0
    for part in node.parts:
        mask |= _find_first(part)
        if _find_least(part):
            break
    return mask


def _join_first(node: Node) -> int:
    mask = 0
    for child in () if isinstance(node, Look) else _list_children(node):
        mask |= _find_first(child)
    return mask


def _find_runs(branch: Node) -> int:
    """Return the characters of which a branch takes every run: ``\\s+``, `` ?[^\\s]+``."""
    parts = branch.parts if isinstance(branch, Sequence) else (branch,)
    for part in parts:
        if isinstance(part, Repeat) and _is_endless(part) and isinstance(part.body, Chars):
            return part.body.mask
        if _find_least(part):
            break
    return 0


def _find_again(node: Node, follow: _Continuation) -> int:
    """Return the characters of the endless repetition that is tried again if `follow` fails.

    Raises:
        ValueError: more than one is.
    """
    match node:
        case Chars():
            return 0
        case Look(body):
            _find_again(body, _Continuation(0, True))
            return ~0 if _has_endless(body) else 0  # at every place, whatever other branches take
        case Choice(branches):
            mask = 0
            for branch in branches:
                mask |= _find_again(branch, follow)
            return mask
        case Sequence(parts):
            return _find_again_in_sequence(parts, follow)
        case Repeat(body):
            return _find_again_in_repeat(node, body, follow)


def _find_again_in_sequence(parts: tuple[Node, ...], follow: _Continuation) -> int:
    found: list[int] = []
    if not follow.may_fail and len(parts) > 1 and _takes_its_run(*parts[-2:]):
        parts = parts[:-1]
    for part in reversed(parts):
        found.append(_find_again(part, follow))
        is_look = isinstance(part, Look)
        first = _find_first(part) | (0 if _find_least(part) else follow.first)
        may_fail = follow.may_fail or is_look or _find_least(part) > 0
        follow = _Continuation(~0 if is_look else first, may_fail)
    masks = [mask for mask in found if mask]
    for index, mask in enumerate(masks):
        if any(mask & other for other in masks[index + 1 :]):
            raise ValueError("two repetitions without end may take the same characters")
    return reduce(int.__or__, masks, 0)


def _takes_its_run(part: Node, look: Node) -> bool:
    """Return True for ``\\s+(?!\\S)`` or ``\\s+(?!\\s)``, which give back one character at most."""
    if not isinstance(look, Look) or not look.denies_next or not isinstance(look.body, Chars):
        return False
    if not isinstance(part, Repeat) or not isinstance(part.body, Chars) or part.most is not None:
        return False
    both = part.body.mask & look.body.mask
    return not both or both == look.body.mask


def _find_again_in_repeat(node: Repeat, body: Node, follow: _Continuation) -> int:
    is_endless = _is_endless(node)
    first = _find_first(body) if node.most != 1 else 0
    inner = _Continuation(first | follow.first, follow.may_fail)
    inside = _find_again(body, inner)
    if inside and node.most != 1 and (node.least > 1 or (follow.may_fail and not is_endless)):
        return _find_again_in_sequence((body, body), follow)
    if not is_endless or not follow.may_fail:
        return inside
    if not _find_least(body) or not _is_clear(body, inner.first):
        raise ValueError("a repetition without end has another one, or a choice, inside")
    return _find_all(body)


def _is_clear(body: Node, follow: int) -> bool:
    """Return True if the body of a repetition matches a text in one way only."""
    match body:
        case Chars() | Look():
            return True
        case Choice(branches):
            seen = 0
            for branch in branches:
                first = _find_first(branch)
                if first & seen or not _is_clear(branch, follow):
                    return False
                seen |= first
            return True
        case Sequence(parts):
            for part in reversed(parts):
                if not _is_clear(part, follow):
                    return False
                follow = _find_first(part) | (0 if _find_least(part) else follow)
            return True
        case Repeat(inner, least, most):
            if least == most:
                return _is_clear(inner, follow | _find_first(inner))
            return not _find_all(inner) & follow and _is_clear(inner, follow | _find_first(inner))


def _count_ways(node: Node) -> int:
    """Return a bound of the ways to match a text, endless repetitions aside."""
    match node:
        case Chars():
            return 1
        case Sequence(parts):
            return prod(map(_count_ways, parts))
        case Choice(branches):
            return sum(map(_count_ways, branches))
        case Look(body):
            return _count_ways(body)
        case Repeat(body, least, most):
            ways = _count_ways(body)
            if _is_endless(node):
                return ways
            assert most is not None
            # Only as many as matter: the number is compared with a limit.
            power = 1
            for _ in range(most):
                power = min(power * ways, MAX_WAYS + 1)
            return min((most - least + 1) * power, MAX_WAYS + 1)
