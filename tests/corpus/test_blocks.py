"""Blocks: the documents of all parts are those of the whole files, wherever the cuts fall."""

import bz2
import codecs
import gzip
import json
import lzma
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

import maskwright.corpus.blocks
import maskwright.corpus.unpack
from maskwright.config import from_mapping
from maskwright.corpus.blocks import Block, cut_into_blocks, estimate_bytes
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Source, Span
from maskwright.corpus.readers.records import FIRST
from maskwright.corpus.sources import find_sources, read_source
from maskwright.errors import CorpusError
from tests.corpus.dumps import head, page, write_dump, write_multistream
from tests.corpus.helpers import write

Read = tuple[list[str], Counter[str]]
STEPS = st.integers(1, 60)


def cut(path: str, block_bytes: int, **settings: object) -> tuple[list[Block], list[str]]:
    """The blocks of what `path` names, and what is reported."""
    reports: list[str] = []
    config = from_mapping(CorpusConfig, settings)
    return cut_into_blocks(find_sources([path]), config, block_bytes, reports.append), reports


def read(sources: Sequence[Source], **settings: object) -> Read | str:
    """The documents and the counts of sources, or the error without the name of the file."""
    counts: Counter[str] = Counter()
    config = from_mapping(CorpusConfig, settings)
    try:
        texts = [document.text for one in sources for document in read_source(one, config, counts)]
    except CorpusError as error:
        return str(error)
    kinds = Counter[str]()
    for reason, count in counts.items():
        kinds[reason.partition(FIRST)[0]] += count
    return texts, kinds


def check_same(name: str, content: bytes, block_bytes: int, **settings: object) -> list[Block]:
    """Check that blocks hold what the file holds, and that they depend on nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / name, content)
        blocks, _ = cut(path, block_bytes, **settings)
        assert cut(path, block_bytes, **settings)[0] == blocks
        # The rows of another width are few, or not, in each part.
        with patch("maskwright.corpus.readers.records._MAX_BAD_ROWS", len(content)):
            whole = read(find_sources([path]), **settings)
            parts = read([source for block in blocks for source in block.sources], **settings)
    assert parts == whole
    return blocks


PIECES = st.sampled_from([
    *("a", "word ", "é", "가나다", "\ufeff", "\u2028", "\x85", "\xa0", " ", "\t", "\x1c", "\x0c"),
    *("\n", "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \t\r\n", "\r", "\n\r", "word " * 300),
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=60).map("".join)
MODES = st.sampled_from(["auto", "line", "blank_line"])


@given(TEXTS, STEPS, MODES, st.sampled_from([b"", codecs.BOM_UTF8]))
@example("a\n\ufeffb\n" * 3, 1, "line", b"")
def test_parts_of_plain_text(text: str, block_bytes: int, mode: str, mark: bytes) -> None:
    settings = {"documents": mode, "max_document_characters": 1_000}
    check_same("x.txt", mark + text.encode(), block_bytes, **settings)
    if mode != "auto":
        check_same("x.md", mark + text.encode(), block_bytes, **settings)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": partial(bz2.compress, compresslevel=1),
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
@settings(max_examples=30)
@given(
    TEXTS, st.integers(1, 200), st.integers(3, 40), MODES, st.sampled_from(["txt", "md", "jsonl"])
)
def test_parts_of_packed_text(
    suffix: str, text: str, block_bytes: int, member: int, mode: str, kind: str
) -> None:
    settings = {"documents": mode, "max_document_characters": 1_000}
    text = json.dumps({"text": "é"}) + text.replace("a", '\n{"text": "a"}\n')
    content = text.encode()
    members = (content[start : start + member] for start in range(0, len(content), member))
    packed = b"".join(map(PACKERS[suffix], members))
    with (
        patch.object(maskwright.corpus.unpack, "BLOCK_BYTES", 16),
        patch.object(maskwright.corpus.unpack, "_INPUT_BYTES", 16),
        patch.object(maskwright.corpus.unpack, "_ZSTD_INPUT_BYTES", 16),
    ):
        check_same(f"x.{kind}{suffix}", packed, block_bytes, **settings)


def test_parts_of_packed_text_are_about_even(tmp_path: Path) -> None:
    draw = random.Random(0)
    text = "".join(f"{draw.randbytes(20).hex()}\n" for _ in range(20_000))
    for suffix, pack in PACKERS.items():
        packed = pack(text.encode())
        path = write(tmp_path / f"x.txt{suffix}", packed)
        blocks, reports = cut(path, len(packed) + 3)  # three times as much text is expected
        with patch.object(maskwright.corpus.unpack, "BLOCK_BYTES", 1 << 16):
            sizes = [len(read(block.sources)[0]) for block in blocks]
        assert (len(sizes), sum(sizes), reports) == (3, 20_000, [])
        assert min(sizes) > 2_000


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "shift_jis", "gb18030", "utf-16"])
@settings(max_examples=20)
@given(letters=st.lists(st.sampled_from(["Ärger über\n", "schön\n\n", "word\n"])), step=STEPS)
def test_parts_of_text_in_another_encoding(encoding: str, letters: list[str], step: int) -> None:
    text = "".join(letters)
    if encoding in ("shift_jis", "gb18030"):
        text = text.translate(str.maketrans("Äüö", "日本語"))
    check_same("x.txt", text.encode(encoding), step, encoding=encoding, documents="line")


LINES = st.lists(st.sampled_from([
    *('{"text": "one"}', '{"text": "é\\n가"}', '{"text": ""}', '{"text": null}', '{"id": 1}'),
    *('{"text": "\ufeff"}', "", " ", "{bad", "[]", '{"text": "raw\ttab"}', "\r"),
]), max_size=30)  # fmt: skip
ENDS = st.sampled_from(["\n", "\r\n"])


@given(LINES, ENDS, st.booleans(), STEPS, st.sampled_from([b"", codecs.BOM_UTF8]))
def test_parts_of_json_lines(
    lines: list[str], end: str, ends_last: bool, block_bytes: int, mark: bytes
) -> None:
    content = end.join(lines) + end * ends_last
    check_same("x.jsonl", mark + content.encode(), block_bytes)


ROWS = st.lists(st.sampled_from(["1\tone", "2\té", '3\t"two', "short", "", " ", "4\ta\rb", "\t"]))
HEADERS = st.sampled_from(["id\ttext", "\r\n\nid\ttext", "text", "id\ttext\r5\tolder", "id"])


@given(HEADERS, ROWS, ENDS, st.booleans(), STEPS, st.sampled_from([b"", codecs.BOM_UTF8]))
@example("\r\n\nid\ttext", ["1\tone"] * 9, "\n", True, 1, codecs.BOM_UTF8)
def test_parts_of_a_table(
    header: str, rows: list[str], end: str, ends_last: bool, block_bytes: int, mark: bytes
) -> None:
    content = end.join([header, *rows]) + end * ends_last
    check_same("x.tsv", mark + content.encode(), block_bytes)


PAGES = st.lists(
    st.tuples(st.sampled_from(["A", "가"]), st.sampled_from(["a & <b>", "[[Datei:x.jpg]] é", ""])),
    max_size=12,
)


@given(PAGES, st.integers(1, 3_000), st.sampled_from(["x.xml", "x.xml.bz2", "multi.xml.bz2"]))
def test_parts_of_a_dump(pages: list[tuple[str, str]], block_bytes: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_any = write_multistream if name == "multi.xml.bz2" else write_dump
        write_any(Path(folder) / name, [*pages, ("Last", "article")], "de")
        content = (Path(folder) / name).read_bytes()
    blocks = check_same(name, content, block_bytes)
    size = len(content) if name == "x.xml" else 3 * len(content)
    assert (len(blocks) == 1) == (
        name == "x.xml.bz2" or size <= block_bytes
    ) or 2 * block_bytes > size


@given(st.lists(st.sampled_from(["one", "가", "", None]), max_size=40), STEPS, st.integers(1, 9))
def test_parts_of_parquet(texts: list[str | None], num_parts: int, num_rows: int) -> None:
    content = pack_parquet(["first", *texts], num_rows)
    check_same("x.parquet", content, max(1, 3 * len(content) // num_parts))


def pack_parquet(texts: list[str | None], num_rows: int) -> bytes:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    file = arrow.BufferOutputStream()
    table = arrow.table({"text": arrow.array(texts, "string")})
    parquet.write_table(table, file, row_group_size=num_rows)
    return file.getvalue().to_pybytes()


def test_row_groups_are_shared_out_evenly(tmp_path: Path) -> None:
    content = pack_parquet(["text"] * 100, 10)
    path = write(tmp_path / "x.parquet", content)
    blocks, _ = cut(path, len(content))  # three times as much text is expected
    assert [source.span for block in blocks for source in block.sources] == [
        Span(0, 4, total=10),
        Span(4, 8, total=10),
        Span(8, 10, total=10),
    ]
    assert blocks[1].sources[0].name == f"{path} (row groups 4 to 8)"


def lines(number: int) -> str:
    return "".join(f"line {n:04}\n" for n in range(number))  # of ten bytes each


def test_small_files_share_a_block_and_so_do_the_ends_of_large_ones(tmp_path: Path) -> None:
    for name, number in (("a", 3), ("b", 4), ("c", 4), ("d", 25), ("e", 7), ("f", 1)):
        write(tmp_path / f"{name}.txt", lines(number))
    blocks, reports = cut(str(tmp_path), 100, documents="line")
    parts = [
        [(one.label, one.span and (one.span.start, one.span.end)) for one in block.sources]
        for block in blocks
    ]
    assert parts == [
        [("a.txt", None), ("b.txt", None)],
        [("c.txt", None)],
        [("d.txt", (0, 110))],
        [("d.txt", (110, 220))],
        [("d.txt", (220, 250)), ("e.txt", None)],
        [("f.txt", None)],
    ]
    assert not reports


def test_parts_are_named_by_their_range(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": "words"}\n' * 200 + "bad\n" * 2)
    blocks, _ = cut(path, 2_000)
    sources = [source for block in blocks for source in block.sources]
    assert sources[1].name == f"{path} (bytes 2,016 to 3,608)"
    counts: Counter[str] = Counter()
    documents = list(read_source(sources[1], CorpusConfig(), counts))
    assert (documents[0].id, documents[0].source) == ("x.jsonl@2016:1", path)
    assert counts == {"bad JSON line (first x.jsonl:89 after byte 2,016)": 2}


def test_a_plan_survives_json_and_names_that_are_not_unicode(tmp_path: Path) -> None:
    write(tmp_path / os.fsdecode(b"\xff.txt"), lines(30))
    write(tmp_path / "table.tsv", "text\n" + lines(30))
    blocks = [*cut(str(tmp_path), 100, documents="line")[0], *cut("hf:wiki/pedia", 100)[0]]
    plain = json.loads(json.dumps([block.to_plain() for block in blocks]))
    assert [Block.from_plain(one) for one in plain] == blocks


def test_text_is_estimated_by_the_size_on_disk(tmp_path: Path) -> None:
    for name, expected in (("a.txt", 8), ("a.txt.gz", 24), ("a.parquet", 24)):
        [source] = find_sources([write(tmp_path / name, b"12345678")])
        assert estimate_bytes(source) == expected
    (tmp_path / "a.txt").unlink()
    assert estimate_bytes(source) == 24
    assert estimate_bytes(find_sources(["pydocs"])[0]) == 0


TEXT = (lines(20) + "\n") * 2
NOISE = random.Random(0).randbytes(99)


@pytest.mark.parametrize(
    ("name", "content", "settings", "reason"),
    [
        ("x.txt.gz", NOISE, {}, "beginning"),
        ("x.tsv.bz2", bz2.compress(NOISE), {}, r"\.bz2 file"),
        ("x.parquet.zst", NOISE, {}, r"\.zst file"),
        ("x.csv", b"text\n" + TEXT.encode(), {}, "CSV"),
        ("x.txt", TEXT.encode("utf-16"), {}, "utf-16-le"),
        ("x.txt", TEXT.encode("utf-7"), {"encoding": "utf-7"}, "utf-7"),
        ("x.txt", TEXT.encode(), {"encoding": "iso2022_jp"}, "iso2022_jp"),
        ("x.txt", TEXT.encode(), {"documents": "file"}, "one document"),
        ("x.md", TEXT.encode(), {}, "one document"),
        ("x.txt", b"word " * 30, {}, "no boundary"),
        ("x.txt", bytes(range(256)), {}, "beginning"),
        ("x.jsonl", b"bad\n" * 30, {}, "no document"),
        ("x.tsv", b"text\rone\n" + TEXT.encode(), {}, "header"),
        ("x.tsv", b"title\n" + TEXT.encode(), {}, "beginning"),
        ("x.tsv", b'text\tn\n"one\ntwo"\t1\n' + TEXT.encode(), {}, "line end"),
        ("x.tsv", b"sep=\t\ntext\n" + TEXT.encode(), {}, "no names"),
        ("x.parquet", b"PAR1" * 30, {}, "beginning"),
        ("x.xml", b"<html>" + TEXT.encode(), {}, "beginning"),
        ("x.xml.bz2", bz2.compress(NOISE), {}, "single bzip2 stream"),
        ("x.xml.gz", gzip.compress(NOISE, mtime=0), {}, r"\.gz file"),
    ],
)
def test_what_cannot_be_cut_is_one_block_and_says_why(
    name: str, content: bytes, settings: dict[str, object], reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    config = from_mapping(CorpusConfig, settings)
    small = find_sources([write(tmp_path / "small.txt", "x")])
    sources = [*small, *find_sources([path]), *find_sources([write(tmp_path / "y.txt", "y")])]
    reports: list[str] = []
    blocks = cut_into_blocks(sources, config, 90, reports.append)
    assert [block.sources for block in blocks] == [(source,) for source in sources]
    [line] = reports
    assert re.match(f"{re.escape(path)} .*{reason}", line)
    assert "\n" not in line


def test_what_has_no_size_is_a_block_of_its_own() -> None:
    reports: list[str] = []
    sources = find_sources(["hf:wiki/pedia", "-", "pydocs"])
    blocks = cut_into_blocks(sources, CorpusConfig(), 10**9, reports.append)
    assert [block.sources for block in blocks] == [(source,) for source in sources]
    assert [line.split(" is read")[0] for line in reports] == ["hf:wiki/pedia", "standard input"]


@pytest.mark.parametrize("boundary", [".{500}", "(?=<siteinfo>)|(?=<page>)"])
def test_bzip2_streams_that_are_not_pages_are_one_block(boundary: str, tmp_path: Path) -> None:
    xml = head() + "".join(page(n, "Title", "Text.") for n in range(9)) + "</mediawiki>"
    cuts = [0, *(match.end() for match in re.finditer(boundary, xml, re.DOTALL)), len(xml)]
    streams = [bz2.compress(xml[start:end].encode()) for start, end in pairwise(cuts)]
    blocks, reports = cut(write(tmp_path / "x.xml.bz2", b"".join(streams)), 100)
    assert (len(blocks), len(reports)) == (1, 1)
    texts, _ = read(blocks[0].sources)
    assert len(texts) == 9


def test_boundaries_are_found_wherever_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_multistream(tmp_path / "x.xml.bz2", [("Title", "Text")] * 20)
    write(tmp_path / "x.txt", ("line\n" * 9 + "\n") * 20)
    write_dump(tmp_path / "x.xml", [("Title", "Text")] * 20)
    for name in ("x.xml.bz2", "x.txt", "x.xml"):
        monkeypatch.setattr(maskwright.corpus.blocks, "_WINDOW", 1 << 16)
        expected = cut(str(tmp_path / name), 500)
        for size in (5, 40, 41):
            monkeypatch.setattr(maskwright.corpus.blocks, "_WINDOW", size)
            assert cut(str(tmp_path / name), 500) == expected


@pytest.mark.parametrize("name", ["x.xml", "x.xml.bz2"])
def test_a_dump_that_is_cut_off_is_an_error_of_its_last_part(name: str, tmp_path: Path) -> None:
    write_any = write_multistream if name == "x.xml.bz2" else write_dump
    write_any(tmp_path / name, [("Title", "Text")] * 20)
    whole = (tmp_path / name).read_bytes()
    path = write(tmp_path / name, whole[:-60])
    sources = [source for block in cut(path, 2_000)[0] for source in block.sources]
    assert len(sources) > 2
    for source in sources[:-1]:
        assert isinstance(read([source]), tuple)
    message = read([sources[-1]])
    assert str(message).startswith(f"{path} (bytes ")


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", lines(30))
    blocks, _ = cut(path, 100)
    write(tmp_path / "x.txt", lines(25))
    message = read(blocks[-1].sources)
    assert isinstance(message, str)
    assert message.startswith(f"{path} (bytes 220 to 300) cannot be read: ")


def test_bytes_before_a_part_count_as_decodable(tmp_path: Path) -> None:
    content = b"plain text\n" * 1_000 + b"f\xfcr, \xfcber\n"
    check_same("x.txt", content, 2_000)
    german = "für über größe\n".encode("cp1252") * 900
    path = write(tmp_path / "x.txt", content + german)
    span = Span(len(content), len(content + german), mode="line", encoding="utf-8")
    message = str(read([replace(find_sources([path])[0], span=span)]))
    assert message.startswith(f"{path} (bytes ")
    assert "likely cp1252" in message


def test_the_encoding_at_the_beginning_is_that_of_all_parts(tmp_path: Path) -> None:
    german = "Die Übertragung wäre schön, sagt der Ärger.\n".encode("cp1252") * 9
    ambiguous = "Ã¤ Ã¶ Ã¼\n".encode("cp1252")  # would be UTF-8
    path = write(tmp_path / "x.txt", german * 9 + ambiguous)
    blocks, _ = cut(path, len(german), encoding="cp1252")
    assert {
        source.span.encoding for block in blocks for source in block.sources if source.span
    } == {"cp1252"}


def test_a_binary_file_in_a_folder_is_counted_once(tmp_path: Path) -> None:
    write(tmp_path / "x.txt", bytes(range(256)) * 90)
    write(tmp_path / "y.txt", "words")
    blocks, _ = cut(str(tmp_path), 1_000)
    assert read([source for block in blocks for source in block.sources]) == (
        ["words"],
        Counter({"binary file": 1}),
    )
