import gzip
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Document
from maskwright.corpus.stream import stream_corpus
from maskwright.errors import CorpusError
from tests.corpus.helpers import write


def stream(*paths: str, counts: Counter[str] | None = None, **settings: object) -> list[Document]:
    counts = Counter() if counts is None else counts
    config = from_mapping(CorpusConfig, settings)
    return list(stream_corpus(paths, config, counts))


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    articles = [f"Title {number}\nText of article {number}." for number in range(300)]
    write(tmp_path / "a.txt", "\n\n".join(articles))
    write(tmp_path / "b.txt.gz", gzip.compress("\n\n".join(reversed(articles)).encode()))
    write(tmp_path / "c.jsonl", '{"text": "new \\u0000 text"}\n{"text": " "}\n{bad\n')
    return str(tmp_path)


def test_read_clean_deduplicate(corpus: str) -> None:
    counts: Counter[str] = Counter()
    documents = stream(corpus, counts=counts)
    assert len(documents) == 301
    assert len({document.text for document in documents}) == 301
    assert documents[0].text == "Title 0\nText of article 0."
    assert documents[-1] == Document("new text", "c.jsonl:1", str(Path(corpus) / "c.jsonl"))
    assert counts == {
        "duplicate": 300,
        "empty": 1,
        "bad JSON line (first c.jsonl:3)": 1,
        "NUL removed": 1,
    }


def test_the_same_input_gives_the_same_documents_in_the_same_order(corpus: str) -> None:
    assert stream(corpus) == stream(corpus)


def test_duplicates_are_kept_on_request(corpus: str) -> None:
    documents = stream(corpus, deduplicate=False)
    assert len(documents) == 601
    assert len({document.text for document in documents}) == 301


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


def test_a_damaged_file_is_an_error_even_in_a_folder(corpus: str) -> None:
    whole = (Path(corpus) / "b.txt.gz").read_bytes()
    write(Path(corpus) / "b.txt.gz", whole[:-9])
    with pytest.raises(CorpusError, match=r"b\.txt\.gz cannot be decompressed"):
        stream(corpus)


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    line = b"a few words that are the same in every line of this file. "
    write(tmp_path / "x.txt.gz", gzip.compress(line * 500_000, compresslevel=1))  # 29 MB, 1 line
    tracemalloc.start()
    try:
        counts: Counter[str] = Counter()
        num_characters = sum(
            len(document.text)
            for document in stream_corpus([str(tmp_path)], CorpusConfig(deduplicate=False), counts)
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_characters == pytest.approx(29_000_000, rel=0.01)
    assert counts["long line cut"] >= 29
    assert peak < 24_000_000


def test_an_encyclopedia_in_one_file() -> None:
    folder = os.environ.get("MASKWRIGHT_DATA")
    if not folder:
        pytest.skip("MASKWRIGHT_DATA names no folder of real corpora")
    counts: Counter[str] = Counter()
    documents = stream(str(Path(folder) / "wiki_en" / "wiki_en.valid.txt.gz"), counts=counts)
    texts = [document.text for document in documents]
    assert texts[0].startswith("Aquarius (constellation)\nAquarius is a constellation of")
    assert 40 < len(texts) < 500
    assert not any("\n\n" in text for text in texts)
