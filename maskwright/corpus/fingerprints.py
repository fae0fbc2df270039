"""Fingerprints of cleaned texts, to find exact duplicates.

Among ten million different documents the chance of even one equal fingerprint of 64 bits is 3 in a
million; `maskwright.preparation` compares 128.
"""

from hashlib import blake2b


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
