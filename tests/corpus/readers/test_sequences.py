"""Readers of FASTA, FASTQ, SMILES and logs: records, ids, repairs, and files of another kind."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.config import from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers.sequences import EMPTY, FOLDED, read_records
from maskwright.corpus.sources import find_sources, stream_corpus
from maskwright.errors import ConfigError, CorpusError
from tests.corpus.helpers import read_all, write
from tests.corpus.test_blocks import check_same

FASTA = """\
>sp|P1|X first protein
MKTAYIAKQR
mktayNX--*

; comment
>p2
ACDEFG HIKL\r
>empty

>p3
.A-
"""
FASTQ = "@r1 lane 1\nACGTN\n+\nIIII@\n@r2\nAC\nGT\n+r2\n@II\nI\n"
SMILES = "smiles name\nCC(=O)O\tacetic acid\nc1ccccc1 B1\n\nC[C@H](N)C |r| ala x\nCCO\n"


def list_records(path: str) -> list[tuple[str, ...]]:
    [source] = find_sources([path])
    return [tuple(record) for record in read_records(source, Counter())]


def test_fasta_records_are_joined_and_made_upper_case(tmp_path: Path):
    path = write(tmp_path / "x.fasta", FASTA)
    counts = Counter[str]()
    assert read_all(path, counts) == ["MKTAYIAKQRMKTAYNX--*", "ACDEFGHIKL", ".A-"]
    assert counts == {FOLDED: 1, EMPTY: 1}
    assert list_records(path)[0] == ("sp|P1|X", "first protein", "MKTAYIAKQRMKTAYNX--*")
    documents = stream_corpus([path], CorpusConfig(), Counter())
    assert [one.id for one in documents] == ["x.fasta:sp|P1|X", "x.fasta:p2", "x.fasta:p3"]


def test_fastq_records_have_no_qualities(tmp_path: Path):
    path = write(tmp_path / "x.fq", FASTQ)
    assert list_records(path) == [("r1", "lane 1", "ACGTN"), ("r2", "", "ACGT")]
    assert read_all(path) == ["ACGTN", "ACGT"]


def test_smiles_keep_their_case_and_have_ids(tmp_path: Path):
    path = write(tmp_path / "x.smi", SMILES)
    assert list_records(path) == [
        ("acetic acid", "", "CC(=O)O"),
        ("B1", "", "c1ccccc1"),
        ("ala", "x", "C[C@H](N)C"),
        ("6", "", "CCO"),
    ]
    assert read_all(path) == ["CC(=O)O", "c1ccccc1", "C[C@H](N)C", "CCO"]


@pytest.mark.parametrize("suffix", [".fasta", ".fa", ".faa", ".fna", ".fasta.gz", ".FA"])
def test_suffixes_of_fasta(suffix: str, tmp_path: Path):
    pack = gzip.compress if suffix.endswith(".gz") else bytes
    path = write(tmp_path / f"x{suffix}", pack(FASTA.encode()))
    assert len(read_all(path)) == 3
    assert len(read_all(str(tmp_path))) == 3


def test_a_long_sequence_is_cut_not_lost(tmp_path: Path):
    path = write(tmp_path / "x.fa", ">chr1\n" + ("ACGT" * 15 + "\n") * 100 + ">b\nA\n")
    counts = Counter[str]()
    texts = read_all(path, counts, max_document_characters=1_000)
    assert [len(text) for text in texts] == [1_000] * 6 + [1]
    assert "".join(texts) == "ACGT" * 1_500 + "A"
    assert len(list_records(path)) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.fasta", "MKTAYIAKQR\n", "is not FASTA: line 1"),
        ("x.fastq", "ACGT\n", "is not FASTQ: line 1"),
        ("x.fastq", "@a\nACGT\n+\nII\n", "4 letters and 2 qualities"),
        ("x.fastq", "@a\nACGT\n", "4 letters and no line"),
        ("x.txt", ">a b\nMKTAYIAK\n", "is FASTA by its first lines, but plain text by its name"),
        ("x.txt", "@a b\nACGT\n+\nIIII\n", "is FASTQ by its first lines"),
        ("x.md", "\n>a\nACGT", "is FASTA"),
    ],
)
def test_files_of_another_kind_are_refused(name: str, content: str, message: str, tmp_path: Path):
    with pytest.raises(CorpusError, match=message):
        read_all(write(tmp_path / name, content))


@pytest.mark.parametrize("content", ["> a quote\nand more\n", ">a\ntwo words\n", "@user hello\n"])
def test_prose_is_not_taken_for_sequences(content: str, tmp_path: Path):
    assert read_all(write(tmp_path / "x.txt", content))


@given(
    st.lists(st.tuples(st.text("abc|.", min_size=1), st.text("ACGTN-", max_size=40)), min_size=1)
)
def test_parts_of_fasta(records: list[tuple[str, str]]):
    lines = (f">{head}\n{text[:7]}\n{text[7:]}\n" for head, text in records)
    for step in (1, 30):
        check_same("x.fasta", "".join(lines).encode(), step)


def test_logs_are_read_by_line_or_by_windows(tmp_path: Path):
    lines = [f"event {n}" for n in range(7)]
    path = write(tmp_path / "x.log", "\n\n".join(lines) + "\n")
    assert read_all(path) == lines
    windows = read_all(path, window_lines=3)
    assert windows == ["\n".join(lines[n : n + 3]) for n in (0, 3, 6)]
    check_same("x.log", "\n".join(lines).encode(), 5, window_lines=3)
    assert len(check_same("x.log", "\n".join(lines).encode(), 5)) > 1
    with pytest.raises(ConfigError, match="window_lines"):
        from_mapping(CorpusConfig, {"window_lines": 3, "documents": "file"})
