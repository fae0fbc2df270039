"""Articles of a Wikipedia dump, read on all cores into the folder that is prepared.

Reading wikitext takes longer than encoding its text, and a text is read twice when a tokenizer is
to be trained on it. So the articles are written down once, compressed, a part of the dump in each
file. Parts that are there when a preparation is interrupted are not read again.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import zstandard

from maskwright.corpus.formats import recognise_name
from maskwright.corpus.paths import expand_home
from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.wikipedia.articles import read_article
from maskwright.corpus.wikipedia.dump import DumpReader, Page, SiteInfo
from maskwright.corpus.wikipedia.markup import Links
from maskwright.corpus.wikipedia.streams import Stream, find_streams, unpack
from maskwright.files import read_json, replacing_file, write_json
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.folder import ARTICLES_NAME, Report
from maskwright.preparation.team import count_cores, work_through

_PART_BYTES = 4 << 20  # of a dump, packed: some 5,000 pages
_PART_CHARACTERS = 16 << 20  # of pages, where the dump cannot be read in parts
_MAX_DONE_BYTES = 1 << 20
_END = b"</mediawiki>"


@dataclass(frozen=True)
class Part:
    """A part of a dump: where its streams lie, or the pages themselves."""

    index: int
    content: Stream | Sequence[Page]


@dataclass(frozen=True)
class PartCounts:
    """What became of a part: pages dropped by reason, and characters of the articles."""

    dropped: Counter[str]
    num_articles: int
    num_characters: int


def write_down_dumps(
    paths: Sequence[str], out: Path, config: PrepareConfig, counts: Counter[str], report: Report
) -> list[str]:
    """`paths`, with a folder of articles below `out` instead of each dump that is named.

    Dumps that lie in a folder or match a pattern are left to `read_source`, on one core.

    Raises:
        CorpusError: a dump is damaged, or mwparserfromhell is needed and not installed.
    """
    return [
        str(_write_down(Path(path), out / ARTICLES_NAME / str(number), config, counts, report))
        if _is_dump(path)
        else path
        for number, path in enumerate(paths)
    ]


def _is_dump(path: str) -> bool:
    found = expand_home(path)
    return recognise_name(found, named=True)[0] == "dump" and found.is_file()


def _write_down(
    dump: Path, folder: Path, config: PrepareConfig, counts: Counter[str], report: Report
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    dump = expand_home(str(dump))
    site, parts = _cut(dump)
    read = partial(PartReader, dump, folder, Links.of(site), config.corpus.text_field)
    num_articles = num_characters = 0
    unread = (part for part in parts if not _read_done(folder, part.index))
    for _ in work_through(unread, read, config.workers or count_cores(), str(dump)):
        report(f"{dump.name}: {_count_done(folder):,} parts read")
    for index in range(_count_done(folder)):
        done = _read_done(folder, index)
        assert done is not None
        counts.update(done.dropped)
        num_articles += done.num_articles
        num_characters += done.num_characters
    report(f"{dump.name}: {num_articles:,} articles, {num_characters:,} characters")
    return folder


def _cut(dump: Path) -> tuple[SiteInfo, Iterator[Part]]:
    """What the dump says about its wiki, and its parts."""
    streams = find_streams(dump) if dump.suffix == ".bz2" else []
    if len(streams) > 1 and unpack(dump, streams[1]).lstrip().startswith(b"<page>"):
        head = DumpReader(dump.name)
        list(head.read([unpack(dump, streams[0]), _END]))
        return head.site, _group_streams(streams[1:])
    reader = DumpReader(dump.name)
    pages = reader.read(read_blocks(dump, recognise_name(dump, named=True)[1], dump.name))
    first = next(pages, None)
    return reader.site, _group_pages(pages, [first] if first else [])


def _group_streams(streams: Iterable[Stream]) -> Iterator[Part]:
    index, start, end = 0, None, 0
    for stream in streams:
        start, end = stream.start if start is None else start, stream.end
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
    """Reads parts of one dump, each into a file of JSON lines.

    Args:
        folder: gets ``NNNNN.jsonl.zst`` and, once that is whole, ``.NNNNN.json``.
        text_field: the key of the text in each line.
    """

    def __init__(self, dump: Path, folder: Path, links: Links, text_field: str) -> None:
        self.dump, self.folder, self.links, self.text_field = dump, folder, links, text_field

    def __call__(self, part: Part) -> None:
        dropped: Counter[str] = Counter()
        pages = self._read_pages(part)
        articles = [found for page in pages if (found := read_article(page, self.links, dropped))]
        lines = "".join(
            json.dumps({self.text_field: article}, ensure_ascii=False) + "\n"
            for article in articles
        )
        with replacing_file(self.folder / f"{part.index:05d}.jsonl.zst") as temporary:
            temporary.write_bytes(zstandard.compress(lines.encode(), 3))
        described = {
            "dropped": dict(dropped),
            "num_articles": len(articles),
            "num_characters": sum(map(len, articles)),
        }
        write_json(_done_path(self.folder, part.index), described)

    def _read_pages(self, part: Part) -> Iterable[Page]:
        if not isinstance(part.content, Stream):
            return part.content
        xml = unpack(self.dump, part.content).rstrip()
        name = f"{self.dump.name}, bytes {part.content.start} to {part.content.end}"
        return DumpReader(name).read([b"<mediawiki>", xml.removesuffix(_END), _END])


def _done_path(folder: Path, index: int) -> Path:
    return folder / f".{index:05d}.json"  # hidden, so that it is not read as text


def _count_done(folder: Path) -> int:
    return sum(1 for _ in folder.glob(".*.json"))


def _read_done(folder: Path, index: int) -> PartCounts | None:
    """What became of a part, if it was read before."""
    try:
        values = read_json(_done_path(folder, index), _MAX_DONE_BYTES)
        return PartCounts(
            Counter(values["dropped"]), values["num_articles"], values["num_characters"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
