"""Texts written down in numbered parts, with what is known of each.

A stage of preparation that takes longer than writing its text down works on parts, on all cores,
and a part that is whole when it is interrupted is not made again.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import zstandard

from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS
from maskwright.files import read_json, replacing_file, write_json

# Of a text. A longer line is not read as one, and JSON writes some characters as two.
MOST_CHARACTERS = MAX_RECORD_CHARACTERS // 3

_MAX_FACTS_BYTES = 1 << 20
_BYTES = "num_bytes"


class Numbered(Protocol):
    """A part that is to be worked on."""

    @property
    def index(self) -> int: ...


Part = TypeVar("Part", bound=Numbered)


@dataclass(frozen=True)
class PartFolder:
    """Parts in a folder: ``NNNNN.jsonl.zst`` where there is text, and ``.NNNNN.json``.

    Attributes:
        text_field: the key of the text in each line.
    """

    folder: Path
    text_field: str

    def write(self, index: int, texts: Sequence[str], facts: Mapping[str, Any]) -> None:
        """Write the texts of a part and, once they are complete, its facts.

        Args:
            texts: of at most `MOST_CHARACTERS` each.
        """
        records = ({self.text_field: text} for text in texts)
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        # With a byte order mark, as corpus.encoding is that of other files.
        packed = zstandard.compress(lines.encode("utf-8-sig"), 3) if texts else b""
        if texts:
            with replacing_file(self._text_path(index)) as temporary:
                temporary.write_bytes(packed)
        write_json(self._facts_path(index), {**facts, _BYTES: len(packed)})

    def read_texts(self, index: int) -> list[str]:
        """Read the texts of a written part."""
        if not self._text_path(index).exists():
            return []
        lines = (
            zstandard.ZstdDecompressor()
            .decompressobj()
            .decompress(self._text_path(index).read_bytes())
        )
        records = lines.removeprefix(codecs.BOM_UTF8).splitlines()
        return [json.loads(record)[self.text_field] for record in records]

    def read_facts(self, index: int) -> Mapping[str, Any] | None:
        """Return the facts of a part, if it was written before and its text has the same length."""
        text = self._text_path(index)
        try:
            facts = read_json(self._facts_path(index), _MAX_FACTS_BYTES)
            if (text.stat().st_size if text.exists() else 0) != facts[_BYTES]:
                return None
            return cast(Mapping[str, Any], facts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def pass_over_written(self, parts: Iterable[Part], indices: list[int]) -> Iterator[Part]:
        """Yield the `parts` that have not been written; add the numbers of all to `indices`."""
        for part in parts:
            indices.append(part.index)
            if self.read_facts(part.index) is None:
                yield part

    def read_all_facts(self, indices: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        """Return the facts of each of these parts, all of which have been written."""
        for index in indices:
            facts = self.read_facts(index)
            assert facts is not None, "it was written just now"
            yield facts

    def _text_path(self, index: int) -> Path:
        return self.folder / f"{index:05d}.jsonl.zst"

    def _facts_path(self, index: int) -> Path:
        return self.folder / f".{index:05d}.json"  # hidden, so that it is not read as text
