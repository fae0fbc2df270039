"""Small changes to valid files, which reach far more of a program than random bytes."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

Mutate = Callable[[bytes, Random], bytes]

_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
NASTY_NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"1e999", b"-1e999", b"NaN", b"Infinity", b".inf", b"1e-320", b"0.5",
    b"255", b"256", b"65536", b"2147483647", b"2147483648", b"4294967296", b"9007199254740993",
    b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"1" + b"0" * 30,
    b"9" * 5000, b"0x" + b"f" * 5000, b"true", b"null",
)  # fmt: skip
NASTY_BYTES = (
    b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n\n", b'"', b"'", b"\\", b"{",
    b"[", b"<<: ", b"&a ", b"*a", b"!!python/object/apply:os.system ", b"../", b"/etc/passwd",
    b"[/red]", b"\xed\xa0\x80", b"A" * 3000, b" " * 3000, b"[" * 1200, b'{"a":' * 1200,
    b"- " * 1200, b"%s", b"[MASK]", "\u0315\u0300".encode() * 50, "\ufdfa".encode() * 20,
)  # fmt: skip
_DEEP: list[Any] = []
for _ in range(90):
    _DEEP = [_DEEP]
NASTY_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), 255,
    65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, "", "a",
    " ", "0", "-1", "nan", "../x", "..", "/etc/passwd", "a\0b", "\ud800", "\x1b[31m", "[/red]",
    "a" * 3000, "(a+)+$", "[PAD]", "Sequence", [], [None], [0] * 300, {}, {"type": "Sequence"},
    {"": ""}, _DEEP,
)  # fmt: skip


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """Make one to four changes: a bit, a cut, a piece inserted, doubled, moved; a nasty number."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 4)):
        place = random.randint(0, len(changed))
        stop = min(place + random.choice((1, 2, 4, 8, 64, 1024)), len(changed))
        action = random.randrange(7)
        if action == 0 and place < len(changed):
            changed[place] ^= 1 << random.randrange(8)
        elif action == 1:
            del changed[place : len(changed) if random.random() < 0.3 else stop]
        elif action == 2:
            changed[place:place] = random.choice(NASTY_BYTES)
        elif action == 3:
            changed[place:place] = changed[place:stop] * random.choice((1, 2, 50))
        elif action == 4:
            there = random.randint(0, len(changed))
            changed[there:there] = changed[place:stop]
        elif action == 5:
            changed[place:stop] = random.randbytes(stop - place)
        else:
            _replace_number(changed, random)
    return bytes(changed)


def _replace_number(content: bytearray, random: Random) -> None:
    found = list(_NUMBER.finditer(content))
    if found:
        first, last = random.choice(found).span()
        content[first:last] = random.choice(NASTY_NUMBERS)


def mutate_json(content: bytes, random: Random) -> bytes:
    """Change values and keys, so that it mostly stays JSON."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return mutate_bytes(content, random)
    if random.random() < 0.15:
        return mutate_bytes(content, random)
    for _ in range(random.randint(1, 3)):
        value = _mutate_value(value, random)
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):  # a number of thousands of digits
        return content


def _mutate_value(value: Any, random: Random) -> Any:
    """Return a copy with one change somewhere below, more often near the top."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return random.choice(NASTY_VALUES)
    copy: Any = value.copy()
    key: Any = random.choice(list(copy)) if isinstance(copy, dict) else random.randrange(len(copy))
    action = random.random()
    if action < 0.08:
        del copy[key]
    elif action < 0.16 and isinstance(copy, list):
        copy[key:key] = [copy[random.randrange(len(copy))]] * random.choice((1, 40))
    elif action < 0.16:
        copy[random.choice(("", "type", "x", "../x", key + "s"))] = copy[key]
    elif action < 0.24:
        other = random.choice(list(copy)) if isinstance(copy, dict) else random.randrange(len(copy))
        copy[key], copy[other] = copy[other], copy[key]
    else:
        copy[key] = _mutate_value(copy[key], random)
    return copy


def mutate_safetensors(content: bytes, random: Random) -> bytes:
    """Change the header's JSON under a length that fits it, or the bytes as they are."""
    if len(content) < 8 or random.random() < 0.3:
        return mutate_bytes(content, random)
    size = min(int.from_bytes(content[:8], "little"), len(content) - 8)
    header = mutate_json(content[8 : 8 + size], random)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def either(*mutators: Mutate) -> Mutate:
    """Return a mutation that applies one of them at random."""

    def mutate(content: bytes, random: Random) -> bytes:
        return random.choice(mutators)(content, random)

    return mutate
