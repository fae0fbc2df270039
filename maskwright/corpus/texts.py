"""Texts that a program holds in memory, kept as a file: preparation reads text more than once."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from maskwright.corpus.documents import cut_text
from maskwright.corpus.readers.fields import MAX_RECORD_CHARACTERS
from maskwright.errors import CorpusError
from maskwright.files import flush, naming_file, temporary_path

# JSON spells one character with at most six; a longer line of a file would be cut.
_MAX_CHARACTERS = MAX_RECORD_CHARACTERS // 8

PathLike = str | os.PathLike[str]


def keep_texts(
    text: PathLike | Sequence[PathLike], texts: Iterable[str], folder: Path, field: str
) -> str:
    """Write texts to ``folder/texts-HASH.jsonl``, one a line, and return its path.

    The same texts have the same file, so a run that is repeated or resumed finds its text again.

    Args:
        text: what the caller was given beside `texts`: nothing.
        texts: read once, and never held together in memory.
        field: the name of the field that holds the text.

    Raises:
        TypeError: `text` is given, too, or `texts` holds anything but strings.
        CorpusError: there are no texts.
        OSError: the file cannot be written; names it.
    """
    if text:
        raise TypeError("give text or texts, not both")
    if isinstance(texts, str):
        raise TypeError("texts is one string; give a list of texts, or name files with text")
    folder.mkdir(parents=True, exist_ok=True)
    digest, number = hashlib.sha256(), 0
    temporary = temporary_path(folder / f"texts-{os.getpid()}.jsonl")
    try:
        with naming_file(temporary), temporary.open("wb") as file:
            for number, each in enumerate(texts, start=1):
                for line in _to_lines(each, number, field):
                    digest.update(line)
                    file.write(line)
        if not number:
            raise CorpusError("texts is empty: nothing to train on.")
        flush(temporary)
        kept = folder / f"texts-{digest.hexdigest()[:12]}.jsonl"
        temporary.replace(kept)
    finally:
        temporary.unlink(missing_ok=True)
    return str(kept)


def _to_lines(text: object, number: int, field: str) -> Iterable[bytes]:
    if not isinstance(text, str):
        raise TypeError(f"texts[{number - 1}] is {type(text).__name__}; every text must be a str")
    for part in cut_text(text, _MAX_CHARACTERS):
        yield json.dumps({field: part}).encode() + b"\n"  # in ASCII, whatever a text holds
