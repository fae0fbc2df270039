"""How far a file may unfold.

Text shrinks to a tenth or a twentieth of its size. What unfolds a thousandfold is one byte over
and over, made to fill somebody's memory, disk or time (a "decompression bomb").
"""

from maskwright.errors import CorpusError

MAX_EXPANSION = 500
_FREE_BYTES = 64 << 20  # so much is nobody's harm, and a test file may well be all alike


class Expansion:
    """Adds up what the file `name` unfolds to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unfolded = 0

    def add(self, num_bytes: int, folded: int) -> None:
        """Counts what was just unfolded; `folded` bytes of the file have been read by now.

        Raises:
            CorpusError: all of it is too much for them.
        """
        self._unfolded += num_bytes
        if self._unfolded > _FREE_BYTES + MAX_EXPANSION * folded:
            raise CorpusError(
                f"{self._name} unfolds to more than {MAX_EXPANSION} times its size, as no text does"
                " (a decompression bomb?). If it is what it should be, unpack it yourself and name"
                " the result."
            )
