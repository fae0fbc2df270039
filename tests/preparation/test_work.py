"""The plan, what tasks report, and the errors that they leave."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.corpus.blocks import Block
from maskwright.corpus.documents import Source, Span
from maskwright.errors import ConfigError, CorpusError, ShardError
from maskwright.preparation.work import PLAN_NAME, READ, Plan, Work, add_counts
from maskwright.selection.config import SelectionConfig
from tests.preparation.helpers import cut_small, make_work, small_config, write_corpus, write_lines


def make_plan(num_blocks: int = 3) -> Plan:
    span = Span(10, 20, 5, "line", "cp1252")
    source = Source("a\udcff.txt", "a.txt", "plain", ".gz", Path("/x/a\udcff.txt"), False, span)
    blocks = [Block((source, Source("hf:a", "a", "hub")))] * num_blocks
    config = replace(small_config(), select=SelectionConfig(near_duplicates=0.8, repair=True))
    return Plan(["a", "낱말"], blocks, 1, {"ignored": 2}, config, 7, 0.25, "/x")


def test_a_plan_comes_back(tmp_path: Path) -> None:
    plan = make_plan()
    plan.write(tmp_path / PLAN_NAME)
    assert Plan.read(tmp_path / PLAN_NAME) == plan == Work(tmp_path).plan


@pytest.mark.parametrize(
    ("num_blocks", "num_ranges"), [(1, 1), (16, 1), (17, 2), (1024, 64), (9999, 64)]
)
def test_ranges_are_a_share_of_the_blocks(num_blocks: int, num_ranges: int) -> None:
    """So that the files of a stage are no more than some for each block."""
    assert make_plan(num_blocks).num_ranges == num_ranges


def test_what_is_asked_for_again_is_read_from_files(tmp_path: Path) -> None:
    work = Work(tmp_path)
    (tmp_path / READ).mkdir()
    assert not work.is_done(READ, 3)
    work.report_done(READ, 3, {"counts": Counter(a=2)})
    assert work.is_done(READ, 3)
    assert Work(tmp_path).facts(READ, 3) == {"counts": {"a": 2}}
    assert [path.name for path in (tmp_path / READ).iterdir()] == ["00003.json"]


@pytest.mark.parametrize(
    "error",
    [
        CorpusError("a.txt is damaged."),
        ConfigError("select.language", "xq", "is not a language", "Try en."),
        ShardError("out: 낱말"),
    ],
)
def test_an_error_of_ours_is_raised_by_whoever_waits(tmp_path: Path, error: Exception) -> None:
    work = Work(tmp_path)
    assert work.find_failure(READ) is None
    work.report_failure(READ, 5, error)
    found = work.find_failure(READ)
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_another_error_is_one_line_with_its_stage(tmp_path: Path) -> None:
    work = Work(tmp_path / ".work-0")
    work.folder.mkdir()
    work.report_failure(READ, 5, OSError(28, "No space left\non device", "/x/a"))
    found = work.find_failure(READ)
    assert isinstance(found, ShardError)
    for part in ("the stage read failed on", "OSError", "No space left on device", ".work-0/logs"):
        assert part in str(found)


def test_counts_add_up_and_the_first_bad_line_is_named() -> None:
    bad, other = "bad JSON line (first a.jsonl:7)", "bad JSON line (first b.jsonl:1)"
    assert add_counts([{"empty": 1}, {bad: 2}, {"empty": 2, other: 3}, {bad: 1}]) == {
        "empty": 3, bad: 6
    }  # fmt: skip


def test_documents_stay_but_for_those_that_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 40)
    texts = [f"text {number % 20}" for number in range(60)]
    work = make_work(
        tmp_path / "out", [write_lines(tmp_path / "a.jsonl", texts)], small_config(), "exact"
    )
    kept = [
        (block, key - (block << 32))
        for block in range(len(work.plan.blocks))
        for key in work.read_kept_keys(block)["key"].tolist()
    ]
    everything = [
        (block, index)
        for block in range(len(work.plan.blocks))
        for index, _ in enumerate(work.read_texts(block))
    ]
    assert len(everything) == 60
    assert kept == everything[:20]


def test_nothing_is_found_whole_before_it_is(tmp_path: Path) -> None:
    select = SelectionConfig(near_duplicates=0.8)
    path = write_corpus(tmp_path / "a.txt", 0.02)
    work = make_work(tmp_path / "out", [path], replace(small_config(), select=select), "near")
    assert work.last_round() is None
    with pytest.raises(AssertionError):
        work.read_drops(0)
