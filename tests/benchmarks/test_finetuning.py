"""Tasks that are made of text: what is taken away is what is to be predicted."""

from pathlib import Path

import pytest

from benchmarks.finetuning import shorten, tag_capitals, tag_punctuation
from maskwright.finetuning.config import TaskFiles


@pytest.mark.parametrize(
    ("word", "punctuation", "capital"),
    [
        ("Florida,", "florida B-COMMA", "florida, B-CAPITAL"),
        ("N.A.S.A.", "n.a.s.a B-STOP", "n.a.s.a. B-CAPITAL"),
        ("3.5", "3.5 O", "3.5 O"),
        ("...", "... O", "... O"),
        ("(from", "(from O", "(from O"),
    ],
)
def test_words_and_their_tags(word: str, punctuation: str, capital: str) -> None:
    assert tag_punctuation(word) == punctuation
    assert tag_capitals(word) == capital


@pytest.mark.parametrize(
    ("name", "separator", "begin"),
    [("a.tsv", "\n", ["sentence\tlabel"]), ("b.tsv", "\n", []), ("c.conll", "\n\n", [])],
)
def test_a_small_task_has_some_of_the_examples(
    tmp_path: Path, name: str, separator: str, begin: list[str]
) -> None:
    blank = " " if name.endswith("conll") else "\t"
    examples = [f"a fine film {n} of many words{blank}{n % 2}" for n in range(50)]
    (tmp_path / name).write_text(separator.join([*begin, *examples]) + "\n")
    short = shorten(TaskFiles(task="x", train=tmp_path / name), 20, tmp_path)
    kept = short.train.read_text().strip().split(separator)
    assert kept[: len(begin)] == begin
    assert len(set(kept[len(begin) :])) == 20
    assert {*kept[len(begin) :]} < {*examples}
