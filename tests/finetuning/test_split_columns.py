"""Examples held out by group and by time: what training and validation must not share."""

import csv
from pathlib import Path

import pytest

from maskwright.adapting import finetune
from maskwright.corpus.table_files import read_columns
from maskwright.errors import CorpusError, InputError
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.split import cut_folds
from maskwright.finetuning.task import load_label_task
from maskwright.finetuning.task import read_sets as read_sets_of

COLUMNS = {"sentence1": "text", "label": "label"}
WORDS = ("cat", "dog", "bird", "snail", "horse")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "customer", "date", "size"])
        for n in range(120):
            day = f"2026-{1 + n % 12:02d}-03"
            rows.writerow([f"text {n} {WORDS[n % 5]}", "ab"[n % 2], f"c{n % 17}", day, n])
    return path


def read_sets(
    table: Path, group: str | None = None, valid_after: str | None = None
) -> list[list[dict[str, str]]]:
    """Return the values of the training and validation rows, by the columns of the file."""
    task = load_label_task("classification")
    files = TaskFiles(
        task="classification",
        train=table,
        columns={**COLUMNS},
        group=group,
        valid_after=valid_after,
    )
    with table.open() as file:
        known = {row["text"]: row for row in csv.DictReader(file)}
    return [[known[row.texts[0]] for row in rows] for rows in read_sets_of(task, files, None)]


def test_a_group_is_on_one_side(table: Path):
    train, valid = read_sets(table, group="customer")
    assert len(train) + len(valid) == 120
    assert valid
    assert {row["customer"] for row in train}.isdisjoint(row["customer"] for row in valid)
    split = read_sets(table)  # without it groups are split
    assert {row["customer"] for row in split[0]} & {row["customer"] for row in split[1]}


def test_folds_do_not_split_a_group(table: Path):
    rows = [*read_columns(table, {**COLUMNS, "group": "customer"})]
    folds = cut_folds(rows, [[row.values["label"]] for row in rows], 3)
    sides = [{rows[n].values["group"] for n in fold} for fold in folds]
    assert sum(map(len, sides)) == len(set.union(*sides))


@pytest.mark.parametrize("after", ["date=2026-10-01", "size=100"])
def test_the_later_examples_are_validation(table: Path, after: str):
    train, valid = read_sets(table, valid_after=after)
    column, _, value = after.partition("=")
    width = 12  # so that numbers are ordered as text, too
    assert max(row[column].zfill(width) for row in train) < value.zfill(width)
    assert min(row[column].zfill(width) for row in valid) >= value.zfill(width)


def test_a_time_beyond_all_examples_is_refused(table: Path):
    with pytest.raises(CorpusError, match="2026-01-03 to 2026-12-03"):
        read_sets(table, valid_after="date=2027-01-01")


@pytest.mark.parametrize(
    "flags",
    [
        {"valid_after": "date"},
        {"valid_after": "=3"},
        {"valid_after": "date=2026-10-01", "group": "customer"},
        {"valid_after": "date=2026-10-01", "folds": 3},
        {"group": "customer", "valid": "mails.csv"},
        {"group": "nobody"},
    ],
)
def test_wrong_splits_are_refused(workplace: Path, table: Path, tmp_path: Path, flags: dict):
    run = workplace / "runs" / "small"
    with pytest.raises((InputError, CorpusError)):
        finetune(run, train=table, task="classification", out=tmp_path / "out", **flags)


def test_a_model_is_trained_on_what_was_before(workplace: Path, table: Path, tmp_path: Path):
    lines: list[str] = []
    finetune(
        workplace / "runs" / "small",
        train=table,
        task="classification",
        out=tmp_path / "out",
        valid_after="date=2026-10-01",
        epochs=1,
        seeds=1,
        report=lines.append,
    )
    assert any("examples: 90 training, 30 validation" in line for line in lines)
