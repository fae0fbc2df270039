"""From what the user names to a list of things to read, in an order that never varies.

An input is a file, a folder (read recursively), a pattern such as ``corpus/**/*.txt``, ``-`` for
standard input, ``pydocs`` for the documentation of the Python environment, or a Hugging Face
dataset, ``hf:NAME[:CONFIG][#FIELD]``.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.corpus.formats import (
    KINDS,
    Compression,
    Kind,
    is_dump_index,
    is_wikipedia_dump,
    recognise_name,
)
from maskwright.corpus.hub import parse_hub_name
from maskwright.corpus.paths import expand_home, show_name
from maskwright.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read.

    `name` is how messages and documents call it; `label` is the short form in document ids.
    `path` is None unless it is a file. `explicit` says that the user named this very file, so
    that a file that cannot be read is an error; found in a folder, it is skipped and counted.
    """

    name: str
    label: str
    kind: Kind
    compression: Compression = ""
    path: Path | None = None
    explicit: bool = True


def find_sources(
    paths: Sequence[str], counts: Counter[str] | None = None, reads_json: bool = False
) -> list[Source]:
    """All sources that `paths` name: in the order given, folders sorted, no file twice.

    Hidden files and folders are passed over; files of unknown suffix inside folders are ignored
    and counted in `counts`. Symbolic links to folders are not followed.

    Args:
        reads_json: files called ``.json`` are read inside folders, too.

    Raises:
        CorpusError: no input, a missing path, a pattern without matches, a folder with nothing
            to read, a device or pipe, a dataset name that cannot be one.
    """
    if not paths:
        raise CorpusError("no input given. Name files, folders, hf:NAME, pydocs, or - for stdin.")
    ignored: Counter[str] = Counter() if counts is None else counts
    found: dict[str, Source] = {}
    for given in paths:
        for source in _expand(given, ignored, reads_json):
            identity = str(source.path.resolve()) if source.path else source.name
            found.setdefault(identity, source)
    return list(found.values())


def _expand(given: str, counts: Counter[str], reads_json: bool) -> Iterator[Source]:
    if given == "-":
        yield Source("standard input", "stdin", "plain")
    elif given == "pydocs":
        yield Source("pydocs", "pydocs", "pydocs")
    elif given.startswith("hf:"):
        yield Source(given, parse_hub_name(given).path, "hub")
    else:
        yield from _expand_path(given, counts, reads_json)


def _expand_path(given: str, counts: Counter[str], reads_json: bool) -> Iterator[Source]:
    for match in list_matches(given):
        if match.is_dir():
            yield from _walk(match, counts, reads_json)
        elif is_dump_index(match):
            raise CorpusError(
                f"{match} is the index of a dump and holds no text. Name the dump; its index is "
                "found beside it."
            )
        elif match.is_file():
            kind, compression = recognise_name(match, named=True)
            name, label = show_name(str(match)), show_name(match.name)
            yield Source(name, label, kind or "plain", compression, match)
        else:  # a device may have no end, and a pipe can be read only once
            raise CorpusError(f"{match} is no regular file. Send its text to standard input: -")


def list_matches(given: str) -> list[Path]:
    """The files and folders that a path or a pattern names, sorted; of a pattern no dump's index.

    Raises:
        CorpusError: there are none.
    """
    path = expand_home(given)
    if path.name == "**":  # a folder is read recursively anyway
        path = path.parent
    if _exists(path):
        return [path]
    if not any(character in given for character in "*?["):
        raise CorpusError(f"{given} does not exist. Check the path.")
    matches = [match for match in _match(path) if not is_dump_index(match)]
    if not matches:
        raise CorpusError(f"{given} matches no file. Check the pattern and the folder.")
    return matches


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return False


def _match(pattern: Path) -> list[Path]:
    """What a pattern matches, sorted; hidden names only where it spells them out."""
    relative = pattern.relative_to(pattern.anchor)
    named = set(pattern.parts)
    try:
        return sorted(
            match
            for match in Path(pattern.anchor).glob(str(relative))
            if not any(part.startswith(".") and part not in named for part in match.parts)
        )
    except (ValueError, RecursionError, OSError) as error:
        raise CorpusError(f"{pattern} is no valid pattern: {error}.") from None


def _walk(folder: Path, counts: Counter[str], reads_json: bool) -> Iterator[Source]:
    empty = True
    for path in list_files(folder):
        kind, compression = recognise_name(path, reads_json)
        if is_wikipedia_dump(path):
            pattern = folder / (f"*.xml*{compression}" if compression else "*.xml")
            raise CorpusError(
                f"{path} is a dump of Wikipedia, which is not read as one file of a folder. Name "
                f"it: {path}, or a pattern: {pattern}"
            )
        if kind in (None, "dump") or is_dump_index(path) or not path.is_file():
            counts[f"ignored file {show_name(path.suffix.lower()) or 'without suffix'}"] += 1
            continue
        empty = False
        name, label = str(path), path.relative_to(folder).as_posix()
        yield Source(show_name(name), show_name(label), kind, compression, path, explicit=False)
    if empty:
        raise CorpusError(f"{folder} holds no file to read. Known suffixes: {' '.join(KINDS)}.")


def list_files(folder: Path) -> Iterator[Path]:
    """The files below `folder`, sorted folder by folder, without hidden ones.

    Raises:
        CorpusError: a folder that cannot be listed.
    """

    def fail(error: OSError) -> None:
        raise CorpusError(f"{error.filename} cannot be listed: {error.strerror}.")

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))
