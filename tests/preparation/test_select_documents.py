"""Selection inside a preparation: the same whoever does it, resumable, and told about."""

import errno
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.readers import records
from maskwright.errors import ConfigError, CorpusError
from maskwright.preparation import select_documents as selection
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.input_identity import fingerprint_input
from maskwright.preparation.pipeline import prepare
from maskwright.selection.config import SelectionConfig
from maskwright.shards.manifest import SPLITS
from maskwright.tokenizer.config import TokenizerConfig
from tests.corpus.dumps import write_dump
from tests.limits import limited_file_size
from tests.preparation.helpers import interrupt_at, read_folder

ANIMALS = ("horse", "cat", "bird", "fox", "snail", "wolf", "bear", "mouse")
PLACES = ("the hills", "a small town", "the river", "an old barn", "the north", "a garden")
QUESTION = "which animal walked through the garden on the coldest day of the long winter"


def write_corpus(path: Path) -> Path:
    """80 documents, 20 of them a second time with a word changed, and one with a question."""
    draw = random.Random(0)
    documents = [
        " ".join(
            f"The {draw.choice(ANIMALS)} {n} went from {draw.choice(PLACES)} to "
            f"{draw.choice(PLACES)} and met {draw.randint(0, 999)} others."
            for n in range(40)
        )
        for _ in range(80)
    ]
    copies = [text.replace("went", "walked", 1) for text in documents[:20]]
    leaked = f"{documents[0][:500]} {QUESTION}."
    lines = [json.dumps({"text": text}) for text in [*documents, *copies, leaked]]
    path.write_text("\n".join(lines) + "\n")
    return path


def configure(evaluation: Path, workers: int = 1) -> PrepareConfig:
    select = SelectionConfig(
        near_duplicates=0.8, decontaminate=(str(evaluation),), describe=True, language="en",
        language_confidence=0.1,
    )  # fmt: skip
    return PrepareConfig(select=select, tokenizer=TokenizerConfig(vocab_size=300), workers=workers)


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    path = tmp_path / "evaluation.txt"
    path.write_text(f"{QUESTION}\n")
    return path


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_PART_CHARACTERS", 30_000)


def read_shards(out: Path) -> dict[str, bytes]:
    files = [file for split in SPLITS for file in sorted((out / split).iterdir())]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


def test_reasons_are_counted_and_the_rest_is_prepared(tmp_path: Path, evaluation: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    lines: list[str] = []
    manifest = prepare([str(corpus)], tmp_path / "out", configure(evaluation), report=lines.append)
    for stage in ("selected from", "near duplicates left out of"):
        shares = [re.search(r"\((\d+)%, [\d:]+ left\)$", line) for line in lines if stage in line]
        assert len(shares) > 2
        assert shares[-1]
        assert shares[-1][1] == "100"
    assert manifest.dropped["near duplicate"] == 20
    assert manifest.dropped["holds text of an evaluation"] == 1
    assert sum(split.num_documents for split in manifest.splits.values()) == 80
    assert not (tmp_path / "out" / ".selected").exists()
    facts = json.loads((tmp_path / "out" / "selection.json").read_text())
    assert (facts["read"], facts["kept"]) == (101, 80)
    assert facts["languages"]["en"] >= 100
    [(_, shown)] = facts["samples"]["holds text of an evaluation"]
    assert shown.startswith(f"[{' '.join(QUESTION.split()[:13])}] The ")  # why, and what


def test_two_processes_select_the_same(tmp_path: Path, evaluation: Path) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl"))
    for workers in (1, 2):
        prepare([corpus], tmp_path / str(workers), configure(evaluation, workers))
    assert read_shards(tmp_path / "1") == read_shards(tmp_path / "2")
    one, two = ((tmp_path / n / "selection.json").read_text() for n in "12")
    assert one == two


@pytest.mark.parametrize("worker", ["PartSelector", "DuplicateDropper"])
def test_it_goes_on_where_it_was_interrupted(
    tmp_path: Path, evaluation: Path, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl"))
    prepare([corpus], tmp_path / "whole", configure(evaluation))
    cls = getattr(selection, worker)
    work, done = cls.__call__, list[int]()

    def stop_at_the_third(self: object, part: selection.Part) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(part.index)
        work(self, part)

    monkeypatch.setattr(cls, "__call__", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        prepare([corpus], tmp_path / "out", configure(evaluation))

    def note(self: object, part: selection.Part) -> None:
        done.append(part.index)
        work(self, part)

    monkeypatch.setattr(cls, "__call__", note)
    prepare([corpus], tmp_path / "out", configure(evaluation))
    assert len(done) == len(set(done)) > 3  # no part twice
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "whole")


def test_nothing_is_kept(tmp_path: Path, evaluation: Path) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl"))
    config = PrepareConfig(select=SelectionConfig(language="ko"))
    with pytest.raises(CorpusError, match=r"keeps none of 101 documents \(another language: 101"):
        prepare([corpus], tmp_path / "out", config)
    (tmp_path / "empty.txt").write_text("Too short.\n")
    config = PrepareConfig(select=SelectionConfig(decontaminate=(str(tmp_path / "empty.txt"),)))
    with pytest.raises(CorpusError, match="no text there has eight words"):
        prepare([corpus], tmp_path / "none", config)


def test_steps_that_cannot_be_taken_are_known_before_the_text_is_read(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", [("Title", "Text.")])
    config = PrepareConfig(select=SelectionConfig(language="xq"))
    with pytest.raises(ConfigError, match=r"select\.language = xq is not a language"):
        prepare([str(dump)], tmp_path / "out", config)
    assert not (tmp_path / "out" / ".articles").exists()


def test_long_documents_are_cut_and_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_CHARACTERS", 3_000)
    monkeypatch.setattr(selection, "MOST_CHARACTERS", 1_000)
    words = " ".join(f"word{n}" for n in range(9_000)).replace("7 ", "7\n")
    (tmp_path / "book.txt").write_text(words)
    corpus = CorpusConfig(documents="file")
    select = SelectionConfig(drop_boilerplate=True)
    tokenizer = TokenizerConfig(vocab_size=64)
    config = PrepareConfig(corpus=corpus, select=select, tokenizer=tokenizer, workers=1)
    manifest = prepare([str(tmp_path / "book.txt")], tmp_path / "out", config)
    assert not any("bad JSON" in reason for reason in manifest.dropped)
    assert sum(split.num_words for split in manifest.splits.values()) == 9_000


def test_the_report_shows_what_was_dropped(
    tmp_path: Path, evaluation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, out = write_corpus(tmp_path / "corpus.jsonl"), tmp_path / "out"
    with corpus.open("a") as file:
        file.write(json.dumps({"text": f"<script>alert(1)</script> {QUESTION}"}) + "\n")
        file.write(corpus.read_text().splitlines()[0] + "\nno JSON\n")
    command = ["prepare", str(corpus), "--out", str(out), "--report", "--workers", "1"]
    command += ["--tokenizer.vocab_size", "300", "--select.decontaminate", str(evaluation)]
    assert main(command) == 0
    page = (out / "report.html").read_text()
    assert "holds text of an evaluation" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in page
    assert "Languages" in page
    for reason in (
        "duplicate",
        "bad JSON line (first corpus.jsonl:104)",
    ):  # of no step of selection
        assert f'<tr><th scope="row">{reason}</th><td>1</td></tr>' in page
    assert "open it in a browser" in capsys.readouterr().out
    (out / "report.html").unlink()
    assert main(command) == 0  # prepared before: the page is written again
    assert (out / "report.html").read_text() == page
    (out / "selection.json").write_text("{}")
    assert main(command) == 0
    assert (out / "report.html").read_text() == page


def write_mixed(folder: Path) -> Path:
    """Files of several kinds with what cleaning, cutting and counting have to do with."""
    folder.mkdir()
    text = write_corpus(folder / "a.jsonl").read_text()
    odd = ["", " \u00ad ", "a\x07bell \u0958 e\u0301", "long word " * 300, "twice", "twice"]
    (folder / "a.jsonl").write_text(text + "".join(json.dumps({"text": x}) + "\n" for x in odd))
    (folder / "b.md").write_text("# Title\n\nNot all of it   is tidy. \n\n\n\nEnd.")
    (folder / "c.csv").write_text('n,text\n1,"two\nlines"\n2,\n')
    (folder / "d.txt").write_bytes(b"one\n\ntwo \xff\n\n\xf0\x9d\x92\xb3\n" + b"more of it " * 100)
    (folder / "e.doc").write_text("of an unknown kind")
    (folder / "f.txt").touch()
    return folder


@pytest.mark.parametrize("select", [SelectionConfig(), SelectionConfig(near_duplicates=0.8)])
def test_a_report_changes_nothing_of_the_data(tmp_path: Path, select: SelectionConfig) -> None:
    text = str(write_mixed(tmp_path / "text"))
    corpus, tokenizer = CorpusConfig(max_document_characters=1_000), TokenizerConfig(vocab_size=300)
    config = PrepareConfig(corpus=corpus, select=select, tokenizer=tokenizer, workers=1)
    described = replace(config, select=replace(select, describe=True))
    assert prepare([text], tmp_path / "out", config) == prepare(
        [text], tmp_path / "with", described
    )
    before = read_folder(tmp_path / "out")
    without, asked_for = before, read_folder(tmp_path / "with")
    told = asked_for.pop("selection.json")
    without.pop("selection.json", None)
    assert without == asked_for
    lines: list[str] = []
    for _ in range(2):
        prepare([text], tmp_path / "out", described, report=lines.append)
    assert read_folder(tmp_path / "out") == {**asked_for, "selection.json": told}
    assert sum("read again" in line for line in lines) == 1


def test_a_report_is_asked_for_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl"))
    select = SelectionConfig(drop_boilerplate=True)
    config = PrepareConfig(select=select, tokenizer=TokenizerConfig(vocab_size=300), workers=1)
    interrupt_at(monkeypatch, selection.PartSelector, 3)
    with pytest.raises(KeyboardInterrupt):
        prepare([corpus], tmp_path / "out", config)
    described = replace(config, select=replace(select, describe=True))
    prepare([corpus], tmp_path / "out", described)
    tally = selection.read_tally(tmp_path / "out")
    assert tally is not None
    assert tally.languages.total() == tally.read == 101


def test_what_is_held_out_is_not_trained_on_mended(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "corpus.jsonl")
    documents = [json.loads(line)["text"] for line in text.read_text().splitlines()]
    broken = [f"Übung {n}: {one}\nWe use cookies." for n, one in enumerate(documents[:5])]
    broken = [one.encode().decode("cp1252") for one in broken]  # as by a careless program
    held_out, both = tmp_path / "valid.jsonl", tmp_path / "both.jsonl"
    for path, texts in ((held_out, broken), (both, [*documents[40:80], *broken])):
        path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    config = PrepareConfig(
        corpus=CorpusConfig(valid_text=(str(held_out),)),
        select=SelectionConfig(repair=True, drop_boilerplate=True),
        tokenizer=TokenizerConfig(vocab_size=300),
        workers=1,
    )
    manifest = prepare([str(both)], tmp_path / "out", config)
    assert manifest.dropped["in corpus.valid_text"] == 5
    assert manifest.splits["train"].num_documents == 40


@pytest.mark.parametrize("repair", [False, True])
def test_near_copies_of_what_is_held_out_go_with_it(tmp_path: Path, repair: bool) -> None:
    held_out, both = tmp_path / "valid.txt", tmp_path / "both.txt"
    words = [f"word{n}" for n in range(400)]
    held_out.write_text(" ".join(words))
    copy = " ".join([*words[:200], "another", *words[201:]])
    others = (" ".join(f"other{n}{m}" for m in range(50)) for n in range(30))
    both.write_text("\n\n".join([" ".join(words), copy, *others]))
    config = PrepareConfig(
        corpus=CorpusConfig(valid_text=(str(held_out),)),
        select=SelectionConfig(repair=repair, near_duplicates=0.8),
        tokenizer=TokenizerConfig(vocab_size=300),
        workers=1,
    )
    manifest = prepare([str(both)], tmp_path / "out", config)
    assert manifest.dropped == {"in corpus.valid_text": 1, "near duplicate": 1}
    assert manifest.splits["train"].num_documents == 30


def test_files_of_evaluation_count_by_what_is_in_them(tmp_path: Path, evaluation: Path) -> None:
    corpus = [str(write_corpus(tmp_path / "corpus.jsonl"))]
    before = fingerprint_input(corpus, configure(evaluation), 0)
    moved = evaluation.rename(tmp_path / "elsewhere.txt")
    assert fingerprint_input(corpus, configure(moved), 0) == before
    moved.write_text("another question that is long enough to be looked for in text")
    assert fingerprint_input(corpus, configure(moved), 0) != before


def test_signatures_that_a_disk_has_no_room_for_are_named(tmp_path: Path, evaluation: Path) -> None:
    corpus = str(write_corpus(tmp_path / "corpus.jsonl"))
    too_small = limited_file_size(2000)
    with too_small, pytest.raises(OSError, match="signatures") as caught:
        prepare([corpus], tmp_path / "out", configure(evaluation))
    assert caught.value.errno == errno.EFBIG
