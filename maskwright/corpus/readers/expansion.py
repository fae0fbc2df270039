"""How far a file may unfold.

Text shrinks to a tenth or a twentieth of its size. What unfolds a thousandfold is one byte over
and over, made to fill somebody's memory, disk or time (a "decompression bomb").
"""

from maskwright.errors import CorpusError

MAX_EXPANSION = 500
_FREE_BYTES = 64 << 20  # so much is nobody's harm, and a test file may well be all alike


class Expansion:
    """Adds up what the file `name`, of `num_bytes`, unfolds to."""

    def __init__(self, name: str, num_bytes: int) -> None:
        self._name = name
        self._limit = _FREE_BYTES + MAX_EXPANSION * num_bytes
        self._unfolded = 0

    def add(self, num_bytes: int) -> None:
        """Counts what was just unfolded.

        Raises:
            CorpusError: it is too much for a file of this size.
        """
        self._unfolded += num_bytes
        if self._unfolded > self._limit:
            raise CorpusError(
                f"{self._name} unfolds to more than {MAX_EXPANSION} times its size, as no text does"
                " (a decompression bomb?). If it is what it should be, unpack it yourself and name"
                " the result."
            )
