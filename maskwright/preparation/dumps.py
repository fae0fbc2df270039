"""Articles of a Wikipedia dump, read on all cores into the folder that is prepared.

Reading wikitext takes longer than encoding its text, and a text is read twice when a tokenizer is
to be trained on it. So the articles are written down once, compressed, a part of the dump in each
file. Parts that are there when a preparation is interrupted are not read again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from maskwright.corpus.documents import cut_text
from maskwright.corpus.progress import ReadProgress
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.dispatch import recognize_name
from maskwright.corpus.readers.dump import (
    DumpReader,
    Page,
    Stream,
    find_streams,
    read_article,
    unpack,
)
from maskwright.corpus.readers.wikitext import Links
from maskwright.corpus.sources import list_matches
from maskwright.errors import CorpusError
from maskwright.formatting import count_noun
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.engines import Engine
from maskwright.preparation.folder import ARTICLES_NAME, Report
from maskwright.preparation.parts import MOST_CHARACTERS, PartFolder

_PART_BYTES = 4 << 20  # of a dump, packed: some 5,000 pages
_PART_CHARACTERS = 16 << 20  # of pages, where the dump cannot be read in parts
_END = b"</mediawiki>"


@dataclass(frozen=True)
class Part:
    """A part of a dump: where its streams lie, or the pages themselves."""

    index: int
    content: Stream | Sequence[Page]


def write_down_dumps(
    paths: Sequence[str],
    out: Path,
    config: PrepareConfig,
    counts: Counter[str],
    engine: Engine,
    report: Report,
) -> tuple[list[str], PrepareConfig]:
    """Return `paths` and `config`, with a folder of articles below `out` in place of each dump.

    A dump may also be matched by a pattern, or named by ``corpus.valid_text``. One that is named
    twice is read once.

    Raises:
        CorpusError: a dump is damaged.
        MissingPackageError: mwparserfromhell is not installed.
    """
    folders: dict[Path, str] = {}
    held_out = config.corpus.valid_text
    for dump in (match for path in (*paths, *held_out) for match in _list_matches(path)):
        if _is_dump(dump) and dump.resolve() not in folders:
            folder = out / ARTICLES_NAME / str(len(folders))
            _write_down(dump, folder, config, counts, engine, report)
            folders[dump.resolve()] = str(folder)
    corpus = replace(config.corpus, valid_text=tuple(_put_in_place(held_out, folders)))
    return list(_put_in_place(paths, folders)), replace(config, corpus=corpus)


def _list_matches(path: str) -> list[Path]:
    return [] if path in ("-", "pydocs") or path.startswith("hf:") else list_matches(path)


def _is_dump(path: Path) -> bool:
    return path.is_file() and recognize_name(path, named=True)[0] == "dump"


def _put_in_place(paths: Iterable[str], folders: Mapping[Path, str]) -> Iterator[str]:
    for path in paths:
        found = [(match, folders.get(match.resolve())) for match in _list_matches(path)]
        if any(folder for _, folder in found):
            yield from (folder or str(match.absolute()) for match, folder in found)
        else:
            yield path


def _write_down(
    dump: Path,
    folder: Path,
    config: PrepareConfig,
    counts: Counter[str],
    engine: Engine,
    report: Report,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    progress = ReadProgress(dump.stat().st_size)
    namespaces, parts = _cut(dump, progress)
    written = PartFolder(folder, config.corpus.text_field)
    longest = min(config.corpus.max_document_characters, MOST_CHARACTERS)
    read = partial(PartReader, dump, written, Links.of(namespaces), longest)
    indices: list[int] = []
    unread = progress.hand_out(written.pass_over_written(parts, indices))
    for number, _ in enumerate(engine.work_through(unread, read, str(dump)), start=1):
        progress.finish()
        report(f"{dump.name}: {count_noun(number, 'part')} read{progress}")
    num_articles = num_characters = 0
    for facts in written.read_all_facts(indices):
        counts.update(facts["dropped"])
        num_articles += facts["num_articles"]
        num_characters += facts["num_characters"]
    if not num_articles:
        raise CorpusError(f"{dump} holds no article: {dict(counts)}.")
    report(f"{dump.name}: {num_articles:,} articles, {num_characters:,} characters")


def _cut(dump: Path, progress: ReadProgress) -> tuple[dict[int, str], Iterator[Part]]:
    """Return the names of the namespaces that the dump lists, and its parts."""
    streams = find_streams(dump) if dump.suffix == ".bz2" else []
    if len(streams) > 1 and unpack(dump, streams[1]).lstrip().startswith(b"<page>"):
        head = DumpReader(dump.name)
        list(head.read([unpack(dump, streams[0]), _END]))
        return head.namespaces, _group_streams(streams[1:], progress)
    reader = DumpReader(dump.name)
    compression = recognize_name(dump, named=True)[1]
    pages = reader.read(read_blocks(dump, compression, dump.name, progress.advance))
    first = next(pages, None)
    return reader.namespaces, _group_pages(pages, [first] if first else [])


def _group_streams(streams: Iterable[Stream], progress: ReadProgress) -> Iterator[Part]:
    index, start, end = 0, None, 0
    for stream in streams:
        start, end = stream.start if start is None else start, stream.end
        progress.advance(end)
        if end - start >= _PART_BYTES:
            yield Part(index, Stream(start, end))
            index, start = index + 1, None
    if start is not None:
        yield Part(index, Stream(start, end))


def _group_pages(pages: Iterable[Page], gathered: list[Page]) -> Iterator[Part]:
    index, size = 0, sum(len(page.text) for page in gathered)
    for page in pages:
        gathered.append(page)
        size += len(page.text)
        if size >= _PART_CHARACTERS:
            yield Part(index, gathered)
            index, gathered, size = index + 1, [], 0
    if gathered:
        yield Part(index, gathered)


class PartReader:
    """Reads parts of one dump and writes their articles down.

    Args:
        longest: characters; a longer article is cut into several documents.
    """

    def __init__(self, dump: Path, parts: PartFolder, links: Links, longest: int) -> None:
        self.dump, self.parts, self.links, self.longest = dump, parts, links, longest

    def __call__(self, part: Part) -> None:
        dropped: Counter[str] = Counter()
        pages = self._read_pages(part)
        articles = [found for page in pages if (found := read_article(page, self.links, dropped))]
        dropped["long document cut"] += sum(len(text) > self.longest for text in articles)
        facts = {
            "dropped": dict(dropped),
            "num_articles": len(articles),
            "num_characters": sum(map(len, articles)),
        }
        texts = [piece for text in articles for piece in cut_text(text, self.longest)]
        self.parts.write(part.index, texts, facts)

    def _read_pages(self, part: Part) -> Iterable[Page]:
        if not isinstance(part.content, Stream):
            return part.content
        xml = unpack(self.dump, part.content).rstrip()
        name = f"{self.dump.name}, bytes {part.content.start} to {part.content.end}"
        return DumpReader(name).read([b"<mediawiki>", xml.removesuffix(_END), _END])
