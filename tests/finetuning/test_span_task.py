"""Questions: windows, marks, the loss, and the choice of an answer; a toy task from end to end."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from maskwright import Predictor, predict
from maskwright.cli.main import main
from maskwright.errors import CorpusError
from maskwright.finetuning.examples import Windows
from maskwright.finetuning.span_task import (
    Question,
    Spans,
    choose_answers,
    encode_questions,
    find_near,
    read_questions,
    score_answer,
)
from maskwright.finetuning.task import Answer, Labels
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER

CONTEXT = "Most land snails eat leaves, and slugs eat mushrooms."


def write_squad(path: Path, *asked: dict[str, Any], context: str = CONTEXT) -> Path:
    """Write a file in the layout of SQuAD 2.0."""
    paragraph = {"context": context, "qas": list(asked)}
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": [paragraph]}]}))
    return path


def ask(key: str, question: str, *answers: str, **more: Any) -> dict[str, Any]:
    found = [{"text": text, "answer_start": CONTEXT.index(text)} for text in answers]
    return {"id": key, "question": question, "answers": found, **more}


WORDS = ("the", "cat", "see", "dog", "sleep")  # each is a single token
LABELS = Labels(("start", "end"), (1, 1), 1)


def question(context: str, *answers: tuple[str, int]) -> Question:
    return Question("file: question 1", "1", "the cat", context, answers)


@given(st.lists(st.sampled_from(WORDS), max_size=40), st.integers(12, 30))
def test_windows_hold_each_token_and_fit(words: list[str], longest: int):
    context = " ".join(words)
    examples = encode_questions([("the cat", context)], TOKENIZER, longest, may_be_empty=True)
    assert examples.windows is not None
    assert examples.positions is not None
    seen = {tuple(span) for _, offsets in examples.windows.parts for span in offsets[1:].tolist()}
    assert seen == {*map(tuple, TOKENIZER.encode_with_offsets(context).offsets.tolist())}
    for one, positions, (owner, offsets) in zip(
        examples.inputs, examples.positions, examples.windows.parts, strict=True
    ):
        assert owner == 0
        assert len(one.ids) <= longest
        assert len(positions) == len(offsets)
        ids = TOKENIZER.encode(" ".join(context[a:b] for a, b in offsets[1:])).ids.tolist()
        assert [one.ids[at] for at in positions] == [TOKENIZER.cls_id, *ids]
    overlaps = [
        {*map(tuple, a[1].tolist())} & {*map(tuple, b[1].tolist())}
        for a, b in itertools.pairwise(examples.windows.parts)
    ]
    assert all(len(each) >= 3 for each in overlaps)  # [CLS], and a third of the others


def test_a_window_with_the_whole_answer_is_marked_and_others_are_empty():
    context = " ".join(["dog"] * 20 + ["the cat"] + ["dog"] * 20)
    answer = ("the cat", context.index("the cat"))
    examples = Spans().encode([question(context, answer)], LABELS, TOKENIZER, 20)
    assert examples.windows is not None
    marked = 0
    for targets, (_, offsets) in zip(examples.targets, examples.windows.parts, strict=True):
        marks = np.asarray(targets)
        (first,), (last,) = np.flatnonzero(marks & 1), np.flatnonzero(marks & 2)
        assert np.flatnonzero(marks & 4).tolist() == [0]
        text = context[offsets[first, 0] : offsets[last, 1]]
        whole = "the cat" in context[offsets[1, 0] : offsets[-1, 1]]
        assert text == ("the cat" if whole else "")
        marked += whole
    assert 0 < marked < len(examples)


def test_the_loss_is_the_mean_of_start_and_end_as_in_transformers():
    lengths, starts, ends = (4, 6, 3), (1, 0, 2), (2, 0, 2)
    marks = [np.zeros(length, np.int64) for length in lengths]
    for each, start, end in zip(marks, starts, ends, strict=True):
        each[0] |= 4
        each[start] |= 1
        each[end] |= 2
    logits = torch.randn(sum(lengths), 2, generator=torch.Generator().manual_seed(0))
    padded = torch.full((3, 6, 2), -1e9)
    for row, window in enumerate(logits.split(lengths)):
        padded[row, : len(window)] = window
    expected = sum(
        F.cross_entropy(padded[..., side], torch.tensor(where)) / 2
        for side, where in enumerate((starts, ends))
    )
    found = Spans().loss(logits, torch.as_tensor(np.concatenate(marks)))
    assert found.item() == pytest.approx(float(expected), rel=1e-5)


def make_windows(counts: list[int], may_be_empty: bool) -> Windows:
    """Windows of one text of words ``a0 a1 …``, without overlap."""
    total = sum(counts)
    text = " ".join(f"a{number:02}" for number in range(total))
    spans = np.array([[0, 0], *([4 * n, 4 * n + 3] for n in range(total))])
    ends = np.cumsum([1, *counts])
    parts = [
        (0, np.vstack([spans[:1], spans[begin:end]])) for begin, end in itertools.pairwise(ends)
    ]
    return Windows([text], parts, may_be_empty)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=3), st.integers(0, 9), st.booleans())
def test_the_answer_is_the_best_of_all(counts: list[int], seed: int, may_be_empty: bool):
    windows = make_windows(counts, may_be_empty)
    rng = np.random.default_rng(seed)
    logits: list[NDArray[np.float32]] = [
        rng.normal(size=(count + 1, 2)).astype(np.float32) for count in counts
    ]
    best, answer = -np.inf, ""
    for (_, offsets), scores in zip(windows.parts, logits, strict=True):
        for first, last in itertools.product(range(1, len(scores)), repeat=2):
            if first <= last < first + 30 and scores[first, 0] + scores[last, 1] > best:
                best = float(scores[first, 0] + scores[last, 1])
                answer = windows.texts[0][offsets[first, 0] : offsets[last, 1]]
    if may_be_empty and min(float(scores[0].sum()) for scores in logits) > best:
        answer = ""
    [found] = choose_answers(windows, logits)
    assert found.label == answer
    assert found.score is not None
    assert 0 <= found.score <= 1
    assert (found.span is None) == (not answer)
    if found.span is not None:
        assert windows.texts[0][slice(*found.span)] == answer


def test_the_baseline_finds_words_near_those_of_the_question():
    asked = Question("", "", "What do most land snails eat?", CONTEXT, ())
    assert find_near(asked) == "leaves, and slugs"


TRAIN = [
    ask(f"{number}-{name}", f"What do {name} eat?", "leaves" if name == "snails" else "mushrooms")
    for number in range(30)
    for name in ("snails", "slugs")
]


def test_a_model_learns_to_answer(workplace: Path, tmp_path: Path, cli: Cli):
    train = write_squad(tmp_path / "train.json", *TRAIN)
    test = write_squad(tmp_path / "dev.json", *TRAIN[:2], ask("x", "Who?", is_impossible=True))
    out, model = tmp_path / "run", str(workplace / "runs" / "small")
    command = ["finetune", model, "--task", "spans", "--train", str(train), "--out", str(out)]
    command += ["--valid", str(train), "--test", str(test), "--device", "cpu"]
    command += ["--precision", "bf16"]  # of training; answers may be nearly equal
    assert main([*command, "--epochs", "40", "--learning_rate", "0.003"]) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["deciding_metric"] == "f1"
    assert results["scores"]["exact_match"]["mean"] > 0.9
    assert results["test"]["scores"]["exact_match"]["mean"] == pytest.approx(2 / 3, abs=0.01)
    answers = json.loads((out / "predictions.json").read_text())
    assert answers.keys() == {"0-snails", "0-slugs", "x"}
    assert answers["0-snails"] == "leaves"
    assert "What do slugs eat?" in (out / "report.html").read_text() or answers["x"]
    [first, *_] = predict(out, str(test))
    assert first.texts == ("What do snails eat?", CONTEXT)
    [answer] = Predictor(out)([("What do slugs eat?", CONTEXT)])
    assert isinstance(answer, Answer)
    assert answer.label == answers["0-slugs"]
    assert answer.label in ("mushrooms", "mushrooms.")  # equal in SQuAD's exact match
    end = 43 + len(answer.label)
    assert (answer.span, CONTEXT[43:end]) == ((43, end), answer.label)
    shown = [json.loads(line) for line in cli("predict", out, test, "--json").splitlines()]
    assert shown[0]["label"] == "leaves"
    assert shown[0]["span"] == [21, 27]
    for verb in (["serve", str(out)], ["export", str(out), "--to", "onnx"]):
        assert "answers questions" in cli.refuse(
            *verb, *(["--out", str(tmp_path / "x")] if verb[0] == "export" else [])
        )


@pytest.mark.parametrize(
    "flags", [["--class_weights", "true"], ["--pooling", "mean"], ["--columns", "label=x"]]
)
def test_what_has_no_effect_on_questions_is_refused(
    workplace: Path, tmp_path: Path, cli: Cli, flags: list[str]
):
    train = write_squad(tmp_path / "train.json", *TRAIN)
    model, out = str(workplace / "runs" / "small"), tmp_path / "run"
    command = ["finetune", model, "--task", "spans", "--train", str(train), "--out", str(out)]
    assert "spans" in cli.refuse(*command, *flags)
    assert not out.exists()


# What evaluate-v2.0.py gives for each answer and its references.
SCORES = [
    ("leaves", ["leaves"], 1, 1),
    ("The leaves.", ["leaves"], 1, 1),
    ("LEAVES", ["stems", "leaves"], 1, 1),
    ("green leaves", ["leaves"], 0, 2 / 3),
    ("leaves leaves", ["leaves"], 0, 2 / 3),
    ("a leaf", ["leaves"], 0, 0),
    ("", ["leaves"], 0, 0),
    ("", [], 1, 1),
    ("leaves", [], 0, 0),
    ("the", [], 1, 1),  # nothing is left of it
    ("the", ["the", "leaves"], 0, 0),  # a reference of which nothing is left does not count
    ("the", ["the"], 1, 1),
    ("3.5", ["35"], 1, 1),
    ("well-known", ["wellknown"], 1, 1),
    ("in  the\nyear 1066", ["year 1066"], 0, 2 * 2 / (3 + 2)),
    ("«leaves»", ["leaves"], 0, 0),  # only ASCII punctuation is removed
    ("another answer", ["other answer"], 0, 0.5),  # articles are whole words
]


@pytest.mark.parametrize(("found", "references", "exact", "f1"), SCORES)
def test_scores_are_those_of_the_script(found: str, references: list[str], exact: float, f1: float):
    assert score_answer(found, references) == pytest.approx((exact, f1))


def test_questions_of_both_versions_are_read(tmp_path: Path):
    path = write_squad(
        tmp_path / "dev.json",
        ask("q1", "What do slugs eat?", "mushrooms", "eat mushrooms"),
        ask("q2", "What do cats eat?", "leaves", is_impossible=True),
    )
    first, second = read_questions(path)
    assert (first.key, first.texts) == ("q1", ["What do slugs eat?", CONTEXT])
    assert first.references == (("mushrooms", 43), ("eat mushrooms", 39))
    assert first.answers == ["mushrooms", "eat mushrooms"]
    assert second.answers == []


def test_questions_of_the_hub_are_read(tmp_path: Path):
    row = {"question": "Who?", "context": CONTEXT, "title": "snails"}
    rows = [
        {"id": "a", **row, "answers": {"text": ["slugs"], "answer_start": [33]}},
        {"id": "", **row, "answers": {"text": [], "answer_start": []}},
        {"id": 0, **row, "answers": {"text": [], "answer_start": []}},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    first, second, third = read_questions(path)
    assert third.key == "0"
    assert (first.key, first.references) == ("a", (("slugs", 33),))
    assert (second.key, second.references) == ("2", ())


@pytest.mark.parametrize(
    "answers",
    [
        "slugs",
        {"text": ["slugs"]},
        {"text": ["slugs"], "answer_start": []},
        {"text": 5, "answer_start": [0]},
    ],
)
def test_wrong_answers_of_a_row_are_named(tmp_path: Path, answers: Any):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "Who?", "context": CONTEXT, "answers": answers}))
    with pytest.raises(CorpusError, match=r"train.jsonl:1: answers = "):
        list(read_questions(path))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answers": [{"text": "leaf", "answer_start": 21}]}, "leaf is not at character 21"),
        ({"answers": [{"text": "leaves", "answer_start": -1}]}, "at character -1"),
        ({"answers": [{"text": "leaves"}]}, "in the layout of SQuAD"),
        ({"question": " "}, "question =   must be a text"),
    ],
)
def test_a_wrong_question_is_named(tmp_path: Path, change: dict[str, Any], expected: str):
    asked = {"id": "q7", "question": "What?", **change}
    path = write_squad(tmp_path / "train.json", {"answers": [], **asked})
    with pytest.raises(CorpusError, match=expected):
        list(read_questions(path))


def test_other_files_are_refused(tmp_path: Path):
    path = tmp_path / "train.json"
    wrong = {"": "not JSON", '{"data"': "not JSON", "[1, 2]": "layout", '{"data": "x"}': "layout"}
    for content, expected in wrong.items():
        path.write_text(content)
        with pytest.raises(CorpusError, match=expected):
            list(read_questions(path))
    with pytest.raises(CorpusError, match="No such file"):
        list(read_questions(tmp_path / "none.json"))
    table = tmp_path / "train.csv"
    table.write_text("question,answer\nWho?,I\n")
    with pytest.raises(CorpusError, match="no column context"):
        list(read_questions(table))
