"""What a model is evaluated on, in tokens."""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from maskwright.errors import CorpusError
from maskwright.evaluation.data import MinimalPair, open_text, read_minimal_pairs
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.workplace import data_of


def test_sentences_of_prepared_data_are_its_own_tokens(workplace: Path):
    data = data_of(workplace)
    text = open_text([str(data)], Tokenizer.load(data / "tokenizer"), ())
    length = int(text.corpus.document_lengths.sum())
    ids, word_starts = text.corpus.tokens(0, length), text.corpus.word_starts(0, length)
    sentences = text.encoded(20)
    assert len(sentences) == 20
    for sentence in sentences:
        count = len(sentence.ids)
        windows = np.lib.stride_tricks.sliding_window_view(ids, count)
        begins = np.flatnonzero((windows == sentence.ids).all(axis=1))
        assert len(begins)
        begin = int(begins[0])
        assert np.array_equal(word_starts[begin : begin + count], sentence.word_starts)


def test_sentences_end_with_them(workplace: Path):
    data = data_of(workplace)
    tokenizer = Tokenizer.load(data / "tokenizer")
    sentences = open_text([str(data)], tokenizer, ()).sentences(50)
    texts = [tokenizer.decode(ids) for ids in sentences]
    assert sum(text.endswith(".") for text in texts) > 40
    assert all("." not in text[:-1] for text in texts)


FULL = {
    "sentence_good": "The cats sleep.",
    "sentence_bad": "The cats sleeps.",
    "UID": "agreement_1",
    "linguistics_term": "agreement",
    "field": "morphology",
    "pairID": "0",
}
PLAIN = {"sentence_good": "a b", "sentence_bad": "b a", "field": None}  # None, as of pandas
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def to_lines(*records: object) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_pairs_come_from_plain_and_compressed_files(tmp_path: Path, suffix: str):
    path = tmp_path / f"mine.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](to_lines(FULL, PLAIN)))
    assert read_minimal_pairs([path]) == [
        MinimalPair(
            "The cats sleep.", "The cats sleeps.", "agreement_1", "agreement", "morphology"
        ),
        MinimalPair("a b", "b a", "mine"),
    ]


def test_ewok_is_read_in_the_direction_of_each_line(tmp_path: Path):
    """As the BabyLM evaluation writes it: a second line has contexts and targets swapped."""
    there = {
        "Domain": "social-relations",
        "ContextType": "direct",
        "Context1": "Ali is Ben's boss.",
        "Context2": "Ben is Ali's boss.",
        "Target1": "Ali gives orders.",
        "Target2": "Ben gives orders.",
    }
    back = {f"{k[:-1]}{3 - int(k[-1])}": v for k, v in there.items() if k[-1] in "12"}
    (tmp_path / "social-relations.jsonl").write_bytes(to_lines(there, {**there, **back}))
    one, other = read_minimal_pairs([tmp_path])
    assert one == MinimalPair(
        there["Target1"], there["Target2"], "social-relations", "ewok", context=there["Context1"]
    )
    assert other.texts == [
        "Ben is Ali's boss. Ben gives orders.",
        "Ben is Ali's boss. Ali gives orders.",
    ]


def test_the_supplement_of_babylm_takes_its_paradigm_from_the_file(tmp_path: Path):
    record = {"sentence_good": "A: Who?\nB: Ann.", "sentence_bad": "A: Who?\nB: A car."}
    (tmp_path / "qa_congruence_easy.jsonl").write_bytes(to_lines(record))
    [pair] = read_minimal_pairs([tmp_path])
    assert (pair.paradigm, pair.texts) == ("qa_congruence_easy", [*record.values()])


def test_a_folder_gives_its_json_lines_in_order(tmp_path: Path):
    for name in ("b.jsonl", "a.jsonl", "notes.md", "sub/c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(to_lines(PLAIN))
    assert [pair.paradigm for pair in read_minimal_pairs([tmp_path])] == ["a", "b", "c"]


def test_a_named_file_may_have_any_name_and_a_mark_and_other_line_ends(tmp_path: Path):
    path = tmp_path / "pairs.txt"
    path.write_bytes(b"\xef\xbb\xbf" + to_lines(PLAIN).replace(b"\n", b"\r\n\r\n") + b" ")
    assert read_minimal_pairs([path]) == [MinimalPair("a b", "b a", "pairs")]


def test_the_last_line_needs_no_end_and_blocks_do_not_show(tmp_path: Path):
    path = tmp_path / "long.jsonl"
    long = {"sentence_good": "é" * 700_000, "sentence_bad": "b"}
    path.write_bytes(to_lines(PLAIN, long, PLAIN).rstrip(b"\n"))
    assert [len(pair.good) for pair in read_minimal_pairs([path])] == [3, 700_000, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
        (b'["a", "b"]', "is not a JSON object"),
        (b'{"Target1": "a", "Target2": "b", "Domain": "c"}', "has no Context1"),
        (b'{"sentence_good": "a"}', "has no sentence_bad. Add it, or remove the line."),
        (b'{"sentence_bad": "a"}', "has no sentence_good"),
        (b'{"sentence_good": "a", "sentence_bad": 7}', "sentence_bad = '7' must be a string"),
        (b'{"sentence_good": "a", "sentence_bad": " "}', "sentence_bad = ' ' must be a string"),
        (b'{"sentence_good": "a", "sentence_bad": "b", "UID": []}', "UID = '[]' must be a string"),
        (b'{"sentence_good": "\xe9", "sentence_bad": "b"}', "likely cp1252"),
    ],
)
def test_a_damaged_line_is_one_error_with_its_place(tmp_path: Path, line: bytes, message: str):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(to_lines(PLAIN) + b"\n" + line + b"\n")
    with pytest.raises(CorpusError) as caught:
        read_minimal_pairs([path])
    assert str(caught.value).startswith(f"{path}:3")
    assert message in str(caught.value)


def test_what_holds_no_pairs(tmp_path: Path):
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(to_lines(PLAIN))[:-9])
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "notes.txt").write_text("x")
    for name, message in {
        "empty.jsonl": "empty.jsonl is empty: it holds no minimal pair",
        "cut.jsonl.gz": "cut.jsonl.gz cannot be decompressed",
        "nowhere": "nowhere does not exist",
        "texts": "texts holds no .jsonl file of minimal pairs",
    }.items():
        with pytest.raises(CorpusError, match=message):
            read_minimal_pairs([tmp_path / name])
    with pytest.raises(CorpusError, match=r"no \.jsonl file"):
        read_minimal_pairs(["pydocs"])


@pytest.mark.skipif("MASKWRIGHT_DATA" not in os.environ, reason="needs MASKWRIGHT_DATA")
def test_blimp_as_it_is_published():
    pairs = read_minimal_pairs([Path(os.environ["MASKWRIGHT_DATA"]) / "blimp"])
    assert len({pair.paradigm for pair in pairs}) * 1000 == len(pairs) == 34_000
    assert len({pair.phenomenon for pair in pairs}) == 13
