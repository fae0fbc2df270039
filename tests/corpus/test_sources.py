import gzip
import os
from collections import Counter
from pathlib import Path

import pytest

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Document
from maskwright.corpus.sources import find_sources, show_name, stream_corpus
from maskwright.errors import CorpusError
from tests.corpus.helpers import write


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt.gz", "sub/c.jsonl", "sub/deep/d.csv", "a/z.md"):
        write(tmp_path / name, "x")
    for name in ("photo.jpg", "sub/notes.doc", ".hidden.txt", ".git/e.txt", "Makefile"):
        write(tmp_path / name, "x")
    return tmp_path


def test_a_folder_is_read_recursively_in_sorted_order(corpus: Path) -> None:
    counts: Counter[str] = Counter()
    sources = find_sources([str(corpus)], counts)
    expected = ["a.txt.gz", "b.txt", "a/z.md", "sub/c.jsonl", "sub/deep/d.csv"]
    assert [source.label for source in sources] == expected
    assert not any(source.explicit for source in sources)
    assert counts == {
        "ignored file .jpg": 1,
        "ignored file .doc": 1,
        "ignored file without suffix": 1,
    }


def test_links_to_folders_are_counted_unless_hidden(corpus: Path) -> None:
    expected, counts = find_sources([str(corpus)]), Counter[str]()
    for name in ("link", ".link", "sub/another", "sub/circle"):
        (corpus / name).symlink_to(corpus / "a" if name != "sub/circle" else corpus)
    assert find_sources([str(corpus)], counts) == expected
    assert counts["ignored link to a folder"] == 3


def test_a_match_of_a_pattern_is_not_explicit(corpus: Path) -> None:
    write(corpus / "b[1].txt", "x")
    for given, explicit in (("b.*", False), ("b.txt", True), ("b[1].txt", True)):
        (source,) = find_sources([f"{corpus}/{given}"])
        assert source.explicit == explicit


@pytest.mark.parametrize("given", ["*.txt", "**/*.txt", "**/[ab].txt", "data[2]/?.txt", "[a]/**"])
def test_a_folder_that_exists_means_itself_in_a_pattern(given: str, tmp_path: Path) -> None:
    inner = tmp_path / "[a]" / "data[1]"
    for folder in (inner, inner / "data[2]", inner / "[a]"):
        write(folder / "a.txt", "x")
    write(tmp_path / "a" / "data1" / "b.txt", "x")  # which the names mean as patterns
    write(inner / "data2" / "b.txt", "x")
    found = {source.path for source in find_sources([f"{inner}/{given}"])}
    folders = [inner / "[a]", inner / "data[2]", inner / "data2", inner]
    expected = {"*.txt": folders[3:], "data[2]/?.txt": folders[1:2], "[a]/**": folders[:1]}
    assert {path.parent for path in found if path} == {*expected.get(given, folders)}


def test_a_pattern_matches_files_and_folders(corpus: Path) -> None:
    labels = [source.label for source in find_sources([f"{corpus}/**/*.[tc]*"])]
    assert labels == ["a.txt.gz", "b.txt", "d.csv"]
    labels = [source.label for source in find_sources([f"{corpus}/s*"])]
    assert labels == ["c.jsonl", "deep/d.csv"]
    everything = [source.path for source in find_sources([str(corpus)])]
    assert [source.path for source in find_sources([f"{corpus}/**"])] == everything


def test_a_pattern_passes_over_what_is_hidden_unless_spelled_out(corpus: Path) -> None:
    assert [source.label for source in find_sources([f"{corpus}/*.txt"])] == ["b.txt"]
    assert [source.label for source in find_sources([f"{corpus}/.git/*.txt"])] == ["e.txt"]


def test_no_file_comes_twice_and_the_given_order_is_kept(corpus: Path) -> None:
    named = str(corpus / "sub" / "c.jsonl")
    sources = find_sources([named, str(corpus), named, f"{corpus}/*.txt"])
    assert sources[0].label == "c.jsonl"
    assert sources[0].explicit
    assert len({source.path for source in sources}) == len(sources) == 5


def test_an_explicit_file_of_unknown_suffix_is_plain_text(corpus: Path) -> None:
    (source,) = find_sources([str(corpus / "Makefile")])
    assert source.kind == "plain"
    assert source.explicit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (" ", "a path is empty"),
        ("nowhere.txt", "nowhere.txt does not exist"),
        ("no*where/*.txt", r"no\*where/\*.txt matches no file"),
        ("hf:", "hf: names no dataset"),
        ("a\0b", "does not exist"),
        ("x" * 5000, "does not exist"),
    ],
)
def test_what_names_nothing_is_an_error(given: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        find_sources([given])


def test_no_input_and_a_folder_without_text_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no input given"):
        find_sources([])
    write(tmp_path / "photo.jpg", "x")
    with pytest.raises(CorpusError, match="contains no readable file"):
        find_sources([str(tmp_path)])


DUMP = "kowiki-20260901-pages-articles-multistream"


@pytest.mark.parametrize("index", ["-index.txt.bz2", "-index1.txt-p1p412.bz2", "-index.txt"])
def test_the_index_of_a_dump_is_no_text(tmp_path: Path, index: str):
    write(tmp_path / f"{DUMP}{index}", "616:10:Title")
    write(tmp_path / "pages.txt", "x")
    for given in (str(tmp_path), f"{tmp_path}/*"):
        assert [source.label for source in find_sources([given])] == ["pages.txt"]
    with pytest.raises(CorpusError, match="is the index of a dump, without text"):
        find_sources([str(tmp_path / f"{DUMP}{index}")])


@pytest.mark.parametrize("suffix", [".xml.bz2", "1.xml-p1p412.bz2", ".xml"])
def test_a_dump_is_not_lost_in_a_folder(tmp_path: Path, suffix: str):
    write(tmp_path / f"{DUMP}{suffix}", "x")
    write(tmp_path / "notes.txt", "x")
    with pytest.raises(CorpusError, match=r"is a Wikipedia dump, .* Name the"):
        find_sources([str(tmp_path)])
    assert len(find_sources([f"{tmp_path}/*.xml*"])) == 1


def test_what_comes_of_a_dump_or_with_it_is_no_dump(tmp_path: Path):
    for suffix in (".xml.jsonl", ".xml.txt", ".xml.bz2.md5", ".xml.bz2-rss.xml"):
        write(tmp_path / f"{DUMP}{suffix}", "{}")
    found = find_sources([str(tmp_path)])
    assert [source.label for source in found] == [f"{DUMP}.xml.jsonl", f"{DUMP}.xml.txt"]


def test_names_are_shown_as_unicode() -> None:
    assert show_name("größe.txt") == "größe.txt"
    assert show_name("a\udcff.txt") == "a\ufffd.txt"


def stream(*paths: str, counts: Counter[str] | None = None, **settings: object) -> list[Document]:
    counts = Counter() if counts is None else counts
    config = from_mapping(CorpusConfig, settings)
    return list(stream_corpus(paths, config, counts))


@pytest.fixture
def encyclopedia(tmp_path: Path) -> str:
    articles = [f"Title {number}\nText of article {number}." for number in range(300)]
    write(tmp_path / "a.txt", "\n\n".join(articles))
    write(tmp_path / "b.txt.gz", gzip.compress("\n\n".join(reversed(articles)).encode()))
    write(tmp_path / "c.jsonl", '{"text": "new \\u0000 text"}\n{"text": " "}\n{bad\n')
    return str(tmp_path)


def test_read_clean_deduplicate(encyclopedia: str) -> None:
    counts: Counter[str] = Counter()
    documents = stream(encyclopedia, counts=counts)
    assert len(documents) == 301
    assert len({document.text for document in documents}) == 301
    assert documents[0].text == "Title 0\nText of article 0."
    assert documents[-1] == Document("new text", "c.jsonl:1", str(Path(encyclopedia) / "c.jsonl"))
    assert counts == {
        "duplicate": 300,
        "empty": 1,
        "bad JSON line (first c.jsonl:3)": 1,
        "NUL removed": 1,
    }


def test_an_empty_result_is_an_error_that_counts_the_reasons(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"text": " "}\n{"text": "\\n"}\n{bad\n')
    with pytest.raises(
        CorpusError,
        match=r"nothing is left .* \(empty: 2, bad JSON line \(first x\.jsonl:3\): 1\)\.$",
    ):
        stream(path)
    write(tmp_path / "folder" / "x.txt", bytes(1_000))
    with pytest.raises(CorpusError, match=r"nothing is left .* \(binary file: 1\)\.$"):
        stream(str(tmp_path / "folder"))


def test_an_encyclopedia_in_one_file():
    folder = os.environ.get("MASKWRIGHT_DATA")
    if not folder:
        pytest.skip("MASKWRIGHT_DATA names no folder of real corpora")
    texts = [one.text for one in stream(str(Path(folder) / "wiki_en" / "wiki_en.valid.txt.gz"))]
    assert texts[0].startswith("Aquarius (constellation)\nAquarius is a constellation of")
    assert 40 < len(texts) < 500
    assert not any("\n\n" in text for text in texts)
