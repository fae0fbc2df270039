"""What a user names as text: its sources, in a fixed order, their documents and their identity.

An input is a file, a folder (read recursively), a pattern such as ``corpus/**/*.txt``, ``-`` for
standard input, ``pydocs`` for the documentation of the Python environment, or a Hugging Face
dataset, ``hf:NAME[:CONFIG][#FIELD]``. Texts in memory are written to a file first.
"""

import hashlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import (
    Document,
    Reading,
    Source,
    UnreadableError,
    cut_text,
    expand_home,
    fingerprint_text,
)
from maskwright.corpus.readers.columns import parse_hub_name, read_hub, read_parquet
from maskwright.corpus.readers.dump import read_dump
from maskwright.corpus.readers.pydocs import read_pydocs
from maskwright.corpus.readers.records import MAX_RECORD_CHARACTERS, read_jsonl, read_table
from maskwright.corpus.readers.sequences import read_fasta, read_fastq, read_smiles
from maskwright.corpus.readers.text import read_plain
from maskwright.corpus.rewriting import make_rewriter
from maskwright.corpus.unpack import COMPRESSIONS, Compression
from maskwright.errors import CorpusError
from maskwright.files import flush, naming_file, temporary_path
from maskwright.provenance import find_version

_DUMP_PART = re.compile(r"\.xml-p\d+p\d+")  # a file with the pages of these numbers
# Names that Wikimedia gives to dumps of articles, and to the indices of multistream dumps.
_DUMP = re.compile(r"pages-articles[^.]*\.xml(?:-p\d+p\d+)?(?:\.\w+)?$")
_INDEX = re.compile(r"pages-articles.*-index\d*\.txt(?:-p\d+p\d+)?(?:\.bz2)?")
# JSON escapes a character with at most six; a longer line of a file would be cut.
_MAX_TEXT_CHARACTERS = MAX_RECORD_CHARACTERS // 8
_READ_BYTES = 1 << 20
_CHECKED = 4_000_000  # characters of a source that a check reads
PathLike = str | os.PathLike[str]
# Yields texts, or (name, text) if texts have names.
Reader = Callable[[Reading], Iterator[str] | Iterator[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Format:
    """The reader of one kind of source, and the suffixes of its files.

    `suffixes_if_named` count only for a file that the user names: data sets often name JSON lines
    .json, but in a folder such files are usually settings.
    """

    read: Reader
    suffixes: tuple[str, ...] = ()
    suffixes_if_named: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "plain": Format(read_plain, (".txt", ".text")),
    "markdown": Format(partial(read_plain, auto="file"), (".md",)),
    "jsonl": Format(read_jsonl, (".jsonl", ".ndjson"), (".json",)),
    "csv": Format(read_table, (".csv",)),
    "tsv": Format(partial(read_table, own="\t"), (".tsv",)),
    "parquet": Format(read_parquet, (".parquet",)),
    "fasta": Format(read_fasta, (".fasta", ".fa", ".faa", ".fna", ".ffn", ".frn", ".fas", ".fsa")),
    "fastq": Format(read_fastq, (".fastq", ".fq")),
    "smiles": Format(read_smiles, (".smi", ".smiles")),
    "log": Format(partial(read_plain, auto="line"), (".log",)),
    "dump": Format(read_dump, (), (".xml",)),
    "hub": Format(read_hub),
    "pydocs": Format(lambda _: read_pydocs()),
}


def recognize_name(path: Path, named: bool = False) -> tuple[str | None, Compression]:
    """Return the kind of a file (None for an unknown suffix) and its compression ("" for none)."""
    suffixes = [_DUMP_PART.sub(".xml", suffix.lower()) for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1], "") if suffixes else ""
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else None
    for kind, form in FORMATS.items():
        if suffix in form.suffixes or (named and suffix in form.suffixes_if_named):
            return kind, compression
    return None, compression


def read_source(source: Source, config: CorpusConfig, counts: Counter[str]) -> Iterator[Document]:
    """Yield the documents of one source, uncleaned, in bounded memory.

    Unreadable files and records are counted in `counts` by reason. Raise CorpusError if the source
    is damaged, JSON without its suffix, or named by the user and unreadable.
    """
    number, rewrite = 0, make_rewriter(config)
    limit = config.max_document_characters
    start = source.span.start if source.span else 0
    label = f"{source.label}@{start}" if start else source.label
    try:
        for item in FORMATS[source.kind].read(Reading(source, config, counts)):
            name, text = item if isinstance(item, tuple) else ("", item)
            if source.kind in ("plain", "log") and not (number or start):
                _check_suffix(source, text)
            text = rewrite(text, counts)
            for piece in cut_text(text, limit):
                number += 1
                yield Document(piece, f"{label}:{name or number}", source.title)
            if len(text) > limit:
                counts["long document cut"] += 1
        if not number and source.span is None:
            raise UnreadableError("file without text", f"{source.name} is empty: it has no text.")
    except UnreadableError as error:
        if source.explicit:
            raise
        counts[error.reason] += 1


def _check_suffix(source: Source, beginning: str) -> None:
    """Raise CorpusError if a text of unknown suffix begins with a JSON object."""
    line = beginning.lstrip().partition("\n")[0]
    known = source.kind == "plain" and source.path and recognize_name(source.path)[0]
    if line.startswith("{") and not known:
        with suppress(ValueError, RecursionError):
            json.loads(line, strict=False)
            raise CorpusError(
                f"{source.name} begins with a JSON object, but without the suffix .jsonl it is "
                "plain text. Rename the file; write standard input to a file NAME.jsonl."
            )


def stream_corpus(
    paths: Sequence[str], config: CorpusConfig, counts: Counter[str]
) -> Iterator[Document]:
    """Yield the cleaned documents of both splits that `paths` name.

    The same input yields the same documents in the same order. Memory does not grow with the text,
    except for about 70 bytes per document if `config.deduplicate`. `counts` counts what is dropped
    or repaired by reason: documents, lines or files, as the reason says.

    Raises:
        CorpusError: an input cannot be read, or no document is left.
    """
    seen, is_empty = set[int](), True
    for source in find_sources(paths, counts):
        for document in read_source(source, config, counts):
            text = clean_text(document.text, counts)
            if not text:
                counts["empty"] += 1
                continue
            if config.deduplicate:
                if (fingerprint := fingerprint_text(text)) in seen:
                    counts["duplicate"] += 1
                    continue
                seen.add(fingerprint)
            is_empty = False
            yield document if text == document.text else replace(document, text=text)
    if is_empty:
        raise CorpusError(explain_nothing(paths, "train", counts))


def check_sources(paths: Sequence[str], config: CorpusConfig) -> None:
    """Read the beginning of each source, as `stream_corpus` does; small files are read whole.

    Raises:
        CorpusError: an input cannot be read, or no document is left.
    """
    counts, is_empty, is_whole = Counter[str](), True, True
    for source in find_sources(paths, counts):
        if source.path is None and source.kind != "hub":  # standard input can be read once only
            return
        room = _CHECKED
        for document in read_source(source, config, counts):
            is_empty = is_empty and not clean_text(document.text, counts)
            room -= len(document.text)
            if room < 0:
                is_whole = False
                break
    if is_empty and is_whole:
        raise CorpusError(explain_nothing(paths, "train", counts))


def explain_nothing(paths: Sequence[str], purpose: str, counts: Counter[str]) -> str:
    """Return the error message for a corpus without any document left, with the reasons."""
    reasons = [f"{reason}: {number}" for reason, number in counts.most_common()]
    why = ", ".join(reasons) or "no documents"
    return f"{', '.join(paths)}: nothing is left to {purpose} on ({why})."


def find_sources(
    paths: Sequence[str], counts: Counter[str] | None = None, reads_json: bool = False
) -> list[Source]:
    """Return all sources that `paths` name, in the given order, folders sorted, each file once.

    Hidden files and folders are skipped; files of unknown suffix in folders are ignored and
    counted in `counts`, and so are symbolic links to folders, which are not followed. Raise
    CorpusError for no input, a missing path, a folder with nothing to read, a device or pipe.

    Args:
        reads_json: also read ``.json`` files in folders.
    """
    if not paths:
        raise CorpusError("no input given. Name files, folders, hf:NAME, pydocs, or - for stdin.")
    ignored: Counter[str] = Counter() if counts is None else counts
    found: dict[str, Source] = {}
    for given in paths:
        for source in _expand(given, ignored, reads_json):
            identity = str(source.path.resolve()) if source.path else source.name
            if source.explicit or identity not in found:
                found[identity] = source  # it keeps its place
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
        elif _INDEX.search(match.name):
            raise CorpusError(f"{match} is the index of a dump, without text. Name the dump.")
        elif match.is_file():
            kind, compression = recognize_name(match, named=True)
            name, label = show_name(str(match)), show_name(match.name)
            is_named = match == expand_home(given)
            yield Source(name, label, kind or "plain", compression, match, explicit=is_named)
        else:  # a device may be endless, and a pipe can be read only once
            raise CorpusError(f"{match} is not a regular file. Send its text to standard input: -")


def list_matches(given: str) -> list[Path]:
    """Return the sorted matches of a path or pattern, no dump index; raise CorpusError if none."""
    if not given.strip():
        raise CorpusError("a path is empty, perhaps of an unset variable. Name a file or folder.")
    path = expand_home(given)
    if path.name == "**":  # folders are read recursively
        path = path.parent
    if _exists(path):
        return [path]
    if not any(character in given for character in "*?["):
        raise CorpusError(f"{given} does not exist. Check the path.")
    matches = [match for match in _match(path) if not _INDEX.search(match.name)]
    if not matches:
        raise CorpusError(f"{given} matches no file. Check the pattern and the folder.")
    return matches


def _exists(path: Path) -> bool:
    with suppress(OSError, ValueError):  # the name is too long or has a NUL
        return path.exists()
    return False


def _match(pattern: Path) -> list[Path]:
    """Return the sorted matches of a pattern; folders that exist (``data[1]/*``) mean themselves.

    Hidden names match only if the pattern has them.
    """
    named, folder = set(pattern.parts), Path(pattern.anchor)
    parts = list(pattern.relative_to(folder).parts)
    while _exists(folder / parts[0]):
        folder /= parts.pop(0)
    try:
        return sorted(
            match
            for match in folder.glob("/".join(parts))
            if not any(name.startswith(".") and name not in named for name in match.parts)
        )
    except (ValueError, RecursionError, OSError) as error:
        raise CorpusError(f"{pattern} is not a valid pattern: {error}.") from None


def _walk(folder: Path, counts: Counter[str], reads_json: bool) -> Iterator[Source]:
    empty = True
    for path in list_files(folder, counts):
        kind, compression = recognize_name(path, named=reads_json)  # .json, as if named
        if recognize_name(path, named=True)[0] == "dump" and _DUMP.search(path.name):
            pattern = folder / (f"*.xml*{compression}" if compression else "*.xml")
            raise CorpusError(
                f"{path} is a Wikipedia dump, which is not read from a folder by default. Name the "
                f"file, {path}, or a pattern, {pattern}"
            )
        if kind in (None, "dump") or _INDEX.search(path.name) or not path.is_file():
            counts[f"ignored file {show_name(path.suffix.lower()) or 'without suffix'}"] += 1
            continue
        empty = False
        name, label = str(path), path.relative_to(folder).as_posix()
        yield Source(show_name(name), show_name(label), kind, compression, path, explicit=False)
    if empty:
        known = " ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
        raise CorpusError(f"{folder} contains no readable file. Known suffixes: {known}.")


def list_files(folder: Path, counts: Counter[str] | None = None) -> Iterator[Path]:
    """Yield the files below `folder` except hidden ones, sorted; count links to folders.

    Raises:
        CorpusError: a folder cannot be listed.
    """

    def fail(error: OSError) -> None:
        raise CorpusError(f"{error.filename} cannot be listed: {error.strerror}.")

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        if counts is not None:
            counts.update(["ignored link to a folder"] * len(linked))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))


def show_name(name: str) -> str:
    """Return `name` as valid Unicode, as file names may be any bytes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def keep_texts(
    text: PathLike | Sequence[PathLike], texts: Iterable[str], folder: Path, field: str
) -> str:
    """Write texts to ``folder/texts-HASH.jsonl``, one per line, and return its path.

    Preparation reads text more than once. The same texts have the same file name, so a repeated or
    resumed run finds its text.

    Args:
        text: the caller's argument `text`, which `texts` replaces.
        field: the name of the field that holds the text.

    Raises:
        TypeError: `text` is given too, or `texts` contains anything but strings.
        CorpusError: there are no texts.
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
            raise CorpusError("texts is empty. Give at least one text to train on.")
        flush(temporary)
        kept = folder / f"texts-{digest.hexdigest()[:12]}.jsonl"
        temporary.replace(kept)
    finally:
        temporary.unlink(missing_ok=True)
    return str(kept)


def _to_lines(text: object, number: int, field: str) -> Iterable[bytes]:
    if not isinstance(text, str):
        raise TypeError(f"texts[{number - 1}] is {type(text).__name__}; every text must be a str")
    for part in cut_text(text, _MAX_TEXT_CHARACTERS):
        yield json.dumps({field: part}).encode() + b"\n"  # always ASCII


def identify_source(source: Source) -> list[Any]:
    """Return the identity of a source: the content of its files, not their names.

    The parts of a file together cover its content. A dataset on the hub is identified by its name,
    so a change there is not noticed; a dataset in a local folder, by its files.

    Raises:
        CorpusError: a file cannot be read.
    """
    if source.path is not None:
        return [source.kind, source.compression, _hash_part(source.path, source)]
    if source.kind == "pydocs":
        versions = [find_version(name) or "none" for name in ("numpy", "torch")]
        return ["pydocs", sys.version, *versions]
    if source.kind == "hub" and (folder := (name := parse_hub_name(source.name)).folder):
        # Names matter here: `datasets` infers the split of a file from its name.
        names_and_hashes = (
            part
            for path in list_files(folder)
            for part in (path.relative_to(folder).as_posix(), _hash_part(path))
        )
        return ["hub folder", name.config, name.field, *names_and_hashes]
    return [source.kind, source.name]


def _hash_part(path: Path, source: Source | None = None) -> str:
    """Return the sha256 of a file, or of the bytes that stand for a part of it."""
    digest, span = hashlib.sha256(), source and source.span
    try:
        start, end = 0, path.stat().st_size
        if span is not None:  # proportional for row groups, as any cut covers the whole file
            unit = end if span.total else 1
            start, end = (unit * n // (span.total or 1) for n in (span.start, span.end))
        with path.open("rb") as file:
            file.seek(start)
            while start < end and (block := file.read(min(end - start, _READ_BYTES))):
                digest.update(block)
                start += len(block)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()
