"""Fingerprints of cleaned texts, to find exact duplicates.

Among ten million different documents the chance of even one equal fingerprint is 3 in a million.
"""

from array import array
from hashlib import blake2b

_MAX_LOAD = 0.75


def fingerprint_text(text: str) -> int:
    """Return a 64-bit fingerprint (BLAKE2b) of `text`, the same on every machine."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def fingerprint_pair(text: str) -> tuple[int, int]:
    """Return `fingerprint_text` and a second, independent hash of `text`: together 128 bits."""
    content = text.encode()
    digests = blake2b(content, digest_size=8), blake2b(content, digest_size=8, key=b"second")
    first, second = (int.from_bytes(one.digest(), "little") for one in digests)
    return first, second


class FingerprintSet:
    """A set of 64-bit fingerprints in 11 to 22 bytes each; a Python set takes about 70.

    Open addressing with linear probing in one array whose length is a power of two; 0 marks a
    free slot. Fingerprints are hashes, so their low bits are the first slot.
    """

    def __init__(self) -> None:
        self._slots = _new_slots(1 << 10)
        self._num_filled = 0
        self._has_zero = False  # 0 itself cannot be in a slot

    def __len__(self) -> int:
        return self._num_filled + self._has_zero

    def __contains__(self, fingerprint: int) -> bool:
        if not fingerprint:
            return self._has_zero
        return self._slots[_find_slot(self._slots, fingerprint)] == fingerprint

    def add(self, fingerprint: int) -> bool:
        """Add `fingerprint`; return True if it is new."""
        if not fingerprint:
            new, self._has_zero = not self._has_zero, True
            return new
        slot = _find_slot(self._slots, fingerprint)
        if self._slots[slot]:
            return False
        self._slots[slot] = fingerprint
        self._num_filled += 1
        if self._num_filled > _MAX_LOAD * len(self._slots):
            self._grow()
        return True

    def _grow(self) -> None:
        grown = _new_slots(2 * len(self._slots))
        for fingerprint in self._slots:
            if fingerprint:
                grown[_find_slot(grown, fingerprint)] = fingerprint
        self._slots = grown


def _new_slots(number: int) -> "array[int]":
    return array("Q", bytes(8 * number))


def _find_slot(slots: "array[int]", fingerprint: int) -> int:
    """Return the slot of `fingerprint`, or the free slot where it belongs."""
    last = len(slots) - 1
    slot = fingerprint & last
    while slots[slot] and slots[slot] != fingerprint:
        slot = (slot + 1) & last
    return slot
