"""The XML of a dump: pages, namespaces, streams, and what is refused."""

import bz2
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.dispatch import read_source
from maskwright.corpus.readers.dump import DumpReader, Stream, find_index, find_streams, unpack
from maskwright.corpus.sources import find_sources
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
    assert (first.title, first.id, first.text, first.model) == (
        "가 & 나",
        "1",
        "a < b\n다",
        "wikitext",
    )
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


def test_a_multistream_dump_reads_as_one_file_and_has_its_streams(tmp_path: Path) -> None:
    dump = tmp_path / "xxwiki-pages-articles-multistream.xml.bz2"
    starts = write_multistream(dump, PAGES)
    assert len(read(dump)[0]) == 10
    index = find_index(dump)
    assert index is not None
    streams = find_streams(dump)
    assert [stream.start for stream in streams] == [0, *starts]
    assert unpack(dump, streams[1]).lstrip().startswith(b"<page>")
    index.unlink()
    found = find_streams(dump)  # by what streams begin with; the end is one, too
    assert [stream.start for stream in found][: len(streams)] == [0, *starts]
    assert b"".join(unpack(dump, one) for one in found) == bz2.decompress(dump.read_bytes())


@pytest.mark.parametrize(
    ("dump", "index"),
    [
        ("a-multistream.xml.bz2", "a-multistream-index.txt.bz2"),
        ("a-multistream12.xml-p1p41242.bz2", "a-multistream-index12.txt-p1p41242.bz2"),
    ],
)
def test_parts_of_a_wiki_are_dumps_with_indices(dump: str, index: str, tmp_path: Path) -> None:
    write_multistream(tmp_path / "some.xml.bz2", PAGES)
    (tmp_path / "some.xml.bz2").rename(tmp_path / dump)
    assert find_index(tmp_path / dump) is None
    (tmp_path / index).touch()
    assert find_index(tmp_path / dump) == tmp_path / index
    assert len(read(tmp_path / dump)[0]) == 10


def test_an_index_of_another_dump_is_refused(tmp_path: Path) -> None:
    dump = tmp_path / "a.xml.bz2"
    write_multistream(dump, PAGES)
    elsewhere = ("5", "-5", "9" * 30)
    contents = [(f"{place}:1:x\n".encode(), "is not the index of") for place in elsewhere]
    for content, message in (*contents, (b"no\n", "is not the index")):
        (tmp_path / "a-index.txt.bz2").write_bytes(bz2.compress(content))
        with pytest.raises(CorpusError, match=message):
            find_streams(dump)


def test_damage_is_named(tmp_path: Path) -> None:
    dump = tmp_path / "a.xml.bz2"
    write_multistream(dump, PAGES)
    whole = dump.read_bytes()
    with pytest.raises(CorpusError, match="damaged at byte 0"):
        unpack(dump, Stream(0, 40))
    dump.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorpusError):
        read(dump)


ENTITIES = '<!DOCTYPE mediawiki [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + head() + "</mediawiki>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTITIES, "declares a document type or entities"),
        ('<?xml version="1.0" encoding="foo"?><mediawiki/>', "declares an unsupported encoding"),
        ('<?xml version="1.0" encoding="euc-kr"?><mediawiki/>', "declares an unsupported encoding"),
        ("<html><body/></html>", "begins with <html>"),
        (head() + "<page><title>a", "the dump is damaged or cut"),
        (head().replace('key="14"', 'key="x"'), "the namespace x is not a number"),
        (head() + "<page></wrong>", "line 6 is not XML"),
    ],
)
def test_what_is_no_dump_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(CorpusError, match=message) as caught:
        read(tmp_path / "a.xml")
    assert "\n" not in str(caught.value)


def test_memory_does_not_grow_with_the_dump() -> None:
    def write() -> Iterator[bytes]:
        yield head().encode()
        for number in range(10_000):
            yield page(number, f"Title {number}", "Some text. " * 50).encode()
        yield b"</mediawiki>"

    tracemalloc.start()
    try:
        num_bytes = sum(len(found.text) for found in DumpReader("dump").read(write()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes > 5_000_000
    assert peak < 500_000


def test_xml_in_a_folder_is_ignored(tmp_path: Path) -> None:
    write_dump(tmp_path / "a.xml", PAGES)
    (tmp_path / "b.txt").write_text("text")
    assert [source.label for source in find_sources([str(tmp_path)])] == ["b.txt"]
