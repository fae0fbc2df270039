"""Texts for a model: given as they are, or as the path of a file, which then is read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from maskwright.console import tell
from maskwright.corpus.column_roles import FIRST, Column, find_roles, name_roles
from maskwright.corpus.sources import recognize_name
from maskwright.corpus.table_files import (
    is_named_sequences,
    is_named_table,
    list_names,
    list_texts,
    parse_columns,
    read_columns,
    read_sequence_file,
    read_text_lines,
)
from maskwright.corpus.unpack import COMPRESSIONS
from maskwright.errors import InputError

_CONLL_ENDINGS = (".conll", ".conllu", ".iob", ".bio")  # with or without .txt, compressed or not
_ID = "id"
Texts = str | Path | Iterable[str]


class PlacedText(NamedTuple):
    """A text, its origin as the beginning of an error (``sentences.txt:7: ``), and its id.

    Records of FASTA, FASTQ and SMILES files have an id, and rows of a table with a column ``id``.
    """

    text: str
    place: str = ""
    id: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The id and the text as fields of JSON; no id if there is none."""
        return {**({} if self.id is None else {_ID: self.id}), "text": self.text}


def has_conll_name(path: Path) -> bool:
    """Return True if a file name has an extension of CoNLL: ``a.conll``, ``a.bio.txt.gz``."""
    name = path.name.lower()
    for ending in (*COMPRESSIONS, ".txt"):
        name = name.removesuffix(ending)
    return name.endswith(_CONLL_ENDINGS)


def find_file(texts: Texts) -> Path | None:
    """Return the file that a single text names; None if it is a text, or if there are several.

    Raise InputError if the text looks like a path, but the file is missing.
    """
    if isinstance(texts, str | Path):
        texts = [str(texts)]
    if not isinstance(texts, Sequence) or len(texts) != 1:
        return None
    path = Path(texts[0])
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # a long text, or one with a NUL, is no valid path
        return None
    if (recognize_name(path)[0] or has_conll_name(path)) and " " not in texts[0]:
        raise InputError(
            f"{path} does not exist. Check the path. (To pass a text that looks like a path, echo "
            "it to standard input.)"
        )
    return None


def read_file(
    path: Path,
    columns: Mapping[str, Column] | None = None,
    header: bool | None = None,
    report: Callable[[str], None] = tell,
) -> Iterator[PlacedText]:
    """Yield the texts of a file: its lines, records, or rows of a table; blank ones are texts too.

    Args:
        columns: the text's column by role; default: one with a usual name.
        header: True if the first row of a table holds names; None: it is inferred.
        report: is told what was repaired in sequences.

    Raise InputError for columns of a file that is no table, CorpusError if it cannot be read.
    """
    given = name_roles(columns or {}, (FIRST,), "a list of texts")
    if is_named_table(path):
        if not path.is_file():
            raise InputError(f"{path} cannot be read: it is no file. Check the path.")
        names = list_names(path)
        found = parse_columns(given) or {**find_roles(names, (FIRST,), {}, path)}
        if _ID in names and not any(isinstance(column, int) for column in found.values()):
            found[_ID] = _ID
        for row in read_columns(path, found, header):
            name = row.values.get(_ID)
            yield PlacedText(
                list_texts(row)[0], f"{row.place}: ", None if name is None else str(name)
            )
        return
    if given or header is not None:
        raise InputError("--columns and --header require a table. Give one, or remove them")
    if is_named_sequences(path):
        for record in read_sequence_file(path, report):
            yield PlacedText(record.text, f"{path}:{record.id}: ", record.id)
        return
    for number, line in enumerate(read_text_lines(path), start=1):
        yield PlacedText(line.rstrip("\n"), f"{path}:{number}: ")


def list_texts_of(texts: Texts) -> Iterable[str]:
    """Return the given texts, or those of the file that a single one names."""
    if (path := find_file(texts)) is not None:
        return (one.text for one in read_file(path))
    return [texts] if isinstance(texts, str) else [str(texts)] if isinstance(texts, Path) else texts
