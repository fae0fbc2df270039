"""The split into training and validation, by the fingerprint of a text.

A document is on the same side in every run, corpus and order. Adding text moves nothing, and a
larger fraction contains the smaller one.
"""

LEAST_VALID_FRACTION = 0.01
_MOST = 0.1
_ENOUGH_BYTES = 80_000  # some 20,000 tokens
MOST_BYTES_COUNTED = int(
    _ENOUGH_BYTES / LEAST_VALID_FRACTION
)  # for more text, the least fraction is enough


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Return True if the document with this fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64


def choose_valid_fraction(num_bytes: int) -> float:
    """Return the share to hold out of `num_bytes` of text (UTF-8) if the user gives none."""
    enough = _ENOUGH_BYTES / max(num_bytes, 1)
    return min(_MOST, max(LEAST_VALID_FRACTION, round(enough, 4)))
