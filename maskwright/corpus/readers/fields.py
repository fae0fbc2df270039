"""The column that holds the text, in every format that has columns.

Without it the whole source would be lost in silence, so that is an error even in a folder.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable

from maskwright.errors import CorpusError


class TextField:
    """Picks texts out of records, counts records without, and knows whether any had one."""

    def __init__(self, name: str, source: str, counts: Counter[str]) -> None:
        self.name, self.source, self._counts = name, source, counts
        self._found = False
        self._columns: list[str] = []

    def pick(self, value: object, columns: Iterable[str]) -> str | None:
        """`value` if it is a text, else None, counted; `columns` are those of its record."""
        if isinstance(value, str):
            self._found = True
            return value
        self._counts[f"missing field {self.name}"] += 1
        self._columns = self._columns or list(columns)
        return None

    def check_found(self) -> None:
        """At the end of a source: that the field was there at least once.

        Raises:
            CorpusError: it was not.
        """
        if not self._found and self._columns:
            self.check_columns(self._columns)
            raise CorpusError(
                f"{self.source} has no text in its field {self.name}: its values are no strings."
            )

    def check_columns(self, columns: Iterable[str]) -> None:
        """That the field is one of `columns`.

        Raises:
            CorpusError: it is not; names those that are.
        """
        present = list(columns)
        if self.name not in present:
            shown = [textwrap.shorten(repr(column)[1:-1], 40) for column in present[:12]]
            shown += ["…"] * (len(present) > 12)
            raise CorpusError(
                f"{self.source} has no field {self.name}; it has: {', '.join(shown)}."
                " Choose with corpus.text_field."
            )
