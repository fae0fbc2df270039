"""The column that holds the text, in every format that has columns.

Without it the whole source would be lost in silence, so that is an error even in a folder.
"""

import textwrap
from collections import Counter
from collections.abc import Collection
from itertools import islice

from maskwright.errors import CorpusError

# A line of JSON or of a table that is longer is cut, so it is no record (parsing one takes up to
# thirty times its size); a longer value in a Parquet file is left out.
MAX_RECORD_CHARACTERS = 16_000_000

_NUM_SHOWN = 12


class TextField:
    """Picks texts out of records, counts records without, and knows whether any had one."""

    def __init__(self, name: str, source: str, counts: Counter[str]) -> None:
        self.name, self.source, self._counts = name, source, counts
        self._found = False
        self._failure: CorpusError | None = None  # to be raised if no record has a text

    def pick(self, value: object, columns: Collection[str]) -> str | None:
        """`value` if it is a text, else None, counted; `columns` are those of its record."""
        if isinstance(value, str):
            self._found = True
            return value
        self._counts[f"missing field {self.name}"] += 1
        if self._failure is None and columns:
            self._failure = self.no_text() if self.name in columns else self._no_column(columns)
        return None

    def check_found(self) -> None:
        """At the end of a source: that the field was there at least once.

        Raises:
            CorpusError: it was not.
        """
        if self._failure is not None and not self._found:
            raise self._failure

    def check_columns(self, columns: Collection[str]) -> None:
        """That the field is one of `columns`.

        Raises:
            CorpusError: it is not; names those that are.
        """
        if self.name not in columns:
            raise self._no_column(columns)

    def no_text(self) -> CorpusError:
        """The error for a field that is there, but not as text."""
        return CorpusError(
            f"{self.source} has no text in its field {self.name}: its values are no strings."
        )

    def _no_column(self, columns: Collection[str]) -> CorpusError:
        # A hostile record may have a million columns, and columns may have a million characters.
        shown = [
            textwrap.shorten(repr(column[:100])[1:-1], 40) for column in islice(columns, _NUM_SHOWN)
        ]
        shown += ["…"] * (len(columns) > _NUM_SHOWN)
        return CorpusError(
            f"{self.source} has no field {self.name}; it has: {', '.join(shown)}."
            " Choose with corpus.text_field."
        )
