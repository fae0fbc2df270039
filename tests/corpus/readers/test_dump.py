"""The XML of a dump: pages, namespaces, streams, and what is refused."""

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.dump import DumpReader
from maskwright.corpus.sources import find_sources, read_source
from maskwright.errors import CorpusError
from tests.corpus.dumps import head, page, write_dump, write_multistream

PAGES = [
    (f"Title {n}", f"Text of {n}, with [[link|links]] & <ref>notes</ref>signs.") for n in range(10)
]


def blocks(text: str, size: int = 7) -> Iterator[bytes]:
    data = text.encode()
    return (data[start : start + size] for start in range(0, len(data), size))


def read(path: Path) -> tuple[list[str], Counter[str]]:
    counts: Counter[str] = Counter()
    [source] = find_sources([str(path)])
    return [document.text for document in read_source(source, CorpusConfig(), counts)], counts


def test_pages_come_whole_however_the_bytes_do() -> None:
    reader = DumpReader("dump")
    text = head("ko") + page(1, "가 & 나", "a < b\n다") + page(2, "x", "y", namespace=14)
    first, second = reader.read(blocks(text + "</mediawiki>"))
    assert (first.title, first.text, first.model) == ("가 & 나", "a < b\n다", "wikitext")
    assert (second.namespace, first.is_redirect) == ("14", False)
    assert reader.namespaces[14] == "분류"


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
@pytest.mark.parametrize("language", ["en", "de", "ko"])
def test_articles_are_read_and_all_else_is_counted(
    name: str, language: str, tmp_path: Path
) -> None:
    texts, counts = read(write_dump(tmp_path / name, PAGES, language))
    assert texts[3] == "Title 3\n\nText of 3, with links & signs."
    assert len(texts) == 10
    assert counts == {"redirect": 1, "page that is no article": 1}


def test_a_multistream_dump_reads_as_one_file(tmp_path: Path) -> None:
    dump = tmp_path / "xxwiki-pages-articles-multistream.xml.bz2"
    write_multistream(dump, PAGES)
    assert len(read(dump)[0]) == 10
    part = dump.rename(tmp_path / "a-multistream12.xml-p1p41242.bz2")  # of a wiki
    assert len(read(part)[0]) == 10


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0" encoding="foo"?><mediawiki/>',
        "<html><body/></html>",
        head() + "<page><title>a",
        head().replace('key="14"', 'key="x"'),
        head() + "<page></wrong>",
    ],
)
def test_what_is_no_dump_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(CorpusError, match=r"a\.xml is .*MediaWiki") as caught:
        read(tmp_path / "a.xml")
    assert "\n" not in str(caught.value)


def test_memory_does_not_grow_with_the_dump() -> None:
    def write() -> Iterator[bytes]:
        yield head().encode()
        for number in range(3_000):
            yield page(number, f"Title {number}", "Some text. " * 50).encode()
        yield b"</mediawiki>"

    tracemalloc.start()
    try:
        num_bytes = sum(len(found.text) for found in DumpReader("dump").read(write()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes > 1_500_000
    assert peak < 500_000


def test_xml_in_a_folder_is_ignored(tmp_path: Path) -> None:
    write_dump(tmp_path / "a.xml", PAGES)
    (tmp_path / "b.txt").write_text("text")
    assert [source.label for source in find_sources([str(tmp_path)])] == ["b.txt"]
