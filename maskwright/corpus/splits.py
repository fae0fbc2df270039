"""Train or validation, decided by the document's text alone.

The same document is on the same side in every run, corpus and order; adding text moves nothing,
a duplicate cannot end up on both sides, and a larger fraction contains the smaller one.
"""


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Whether the document with this 64-bit fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64
