from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import torch

from maskwright.errors import ConfigError, CorpusError, TrainingError
from maskwright.finetuning.config import FinetuneConfig, TaskFiles
from maskwright.finetuning.conll import find_entities
from maskwright.finetuning.fit import RunResult, train_seeds
from maskwright.finetuning.loop import EarlyStopping
from maskwright.finetuning.metrics import Metric, Summary, summarize
from maskwright.finetuning.network import build_classifier
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.split import hold_out
from maskwright.finetuning.task import Labels, TaskData, choose_metrics, load_label_task, read_task
from maskwright.finetuning.token_task import score_tags
from maskwright.model_folder.classifier_folder import (
    open_classifier,
    open_pretrained,
    save_classifier,
)
from tests.finetuning.helpers import TOKENIZER, make_loaded, write_nouns, write_tags

CONFIG = FinetuneConfig(
    epochs=8, batch_size=16, learning_rate=3e-3, layer_decay=1.0, dropout=0.0, patience=0
)
CPU = torch.device("cpu")
LABELS = {"sentence1": "sentence1", "label": "label"}


def mean_scores(runs: list[RunResult]) -> dict[str, Summary]:
    return summarize([run.scores for run in runs])


@pytest.fixture(scope="module")
def nouns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nouns(tmp_path_factory.mktemp("nouns") / "train.tsv")


@pytest.mark.parametrize(
    ("task", "columns", "metric", "least"),
    [
        ("classification", LABELS, "accuracy", 0.95),
        ("classification", {**LABELS, "sentence2": "sentence2"}, "accuracy", 0.95),
        ("multilabel", LABELS, "micro_f1", 0.95),
        ("regression", {"sentence1": "sentence1", "label": "value"}, "pearson", 0.8),
    ],
)
def test_a_task_is_learned_saved_and_answered(
    task: str, columns: dict, metric: str, least: float, nouns: Path, tmp_path: Path
):
    loaded = make_loaded()
    data = read_task(TaskFiles(task=task, train=nouns, columns=columns), loaded, CONFIG)
    outcome = train_seeds(data, loaded.model, CONFIG, CPU)
    assert (mean_scores(outcome.runs)[metric]["mean"] or 0) >= least
    assert not data.baselines["majority"][metric] >= least  # of a number it is undefined
    names = data.labels.names
    save_classifier(tmp_path / "model", outcome.model, TOKENIZER, names, data.task.problem)
    predict = Predictor(tmp_path / "model", "cpu")
    assert predict.loaded.problem == data.task.problem
    pairs = "sentence2" in columns
    texts = [("the cat sees", "the") if pairs else "the cat sees"]
    [answer] = predict(texts)
    expected = {"multilabel": ["animal"], "regression": pytest.approx(1, abs=0.5)}
    assert answer.label == expected.get(task, "animal")


def test_muon_learns_a_task(nouns: Path):
    loaded, config = make_loaded(), replace(CONFIG, epochs=3, optimizer="muon")
    config = replace(config, muon_learning_rate=0.02)
    data = read_task(TaskFiles(task="classification", train=nouns, columns=LABELS), loaded, config)
    [run] = train_seeds(data, loaded.model, config, CPU).runs
    assert run.scores["accuracy"] >= 0.9 > data.baselines["majority"]["accuracy"]


def test_tags_are_learned_saved_and_answered(tmp_path: Path):
    loaded = make_loaded()
    files = TaskFiles(task="tokens", train=write_tags(tmp_path / "train.conll"))
    data = read_task(files, loaded, CONFIG)
    outcome = train_seeds(data, loaded.model, CONFIG, CPU)
    assert (mean_scores(outcome.runs)["span_f1"]["mean"] or 0) > 0.95
    assert data.baselines["majority"]["span_f1"] == 0
    assert data.baselines["bag of words"]["span_f1"] > 0.95
    names = data.labels.names
    save_classifier(tmp_path / "model", outcome.model, TOKENIZER, names, data.task.problem)
    predict = Predictor(tmp_path / "model", "cpu")
    [tags] = predict.tag([["the", "cat", "sees", "x-ray"]])
    assert [answer.label for answer in tags] == ["O", "I-animal", "O", "I-thing"]


def test_seeds_are_runs_of_their_own_and_give_the_same_again(nouns: Path):
    loaded = make_loaded()
    config = FinetuneConfig(epochs=1, seeds=2, device="cpu")
    data = read_task(TaskFiles(task="classification", train=nouns, columns=LABELS), loaded, config)
    first, second = (train_seeds(data, loaded.model, config, CPU) for _ in range(2))
    losses = [[run.history[-1]["loss"] for run in outcome.runs] for outcome in (first, second)]
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]
    assert mean_scores(first.runs)["accuracy"]["deviation"] is not None


def test_the_weights_that_scored_best_are_kept(nouns: Path):
    loaded = make_loaded()
    config = FinetuneConfig(epochs=4, learning_rate=3e-3, device="cpu")
    data = read_task(TaskFiles(task="classification", train=nouns, columns=LABELS), loaded, config)
    [run] = train_seeds(data, loaded.model, config, CPU).runs
    best = max(run.history, key=lambda record: (record["accuracy"], -record["valid_loss"]))
    assert (run.best_step, run.scores["accuracy"]) == (best["step"], best["accuracy"])


def test_a_test_is_scored_once_with_the_weights_that_were_chosen(nouns: Path, tmp_path: Path):
    loaded = make_loaded()
    text = nouns.read_text().splitlines()
    flipped = [line.replace("animal", "?").replace("thing", "animal") for line in text]
    test = tmp_path / "test.tsv"
    test.write_text("\n".join(line.replace("?", "thing") for line in flipped) + "\n")
    files = TaskFiles(task="classification", train=nouns, test=test, columns=LABELS)
    data = read_task(files, loaded, CONFIG)
    outcome = train_seeds(data, loaded.model, CONFIG, CPU)
    assert data.test is not None
    assert len(data.test) == len(text) - 1
    [run] = outcome.runs
    assert run.scores["accuracy"] > 0.9
    assert run.test_scores["accuracy"] < 0.1  # every label there is the other one
    assert data.test_baselines["bag of words"]["accuracy"] < 0.1
    without = replace(files, test=None)
    data = read_task(without, loaded, CONFIG)
    [again] = train_seeds(data, loaded.model, CONFIG, CPU).runs
    assert again.test_scores == {}
    assert again.scores == run.scores


@pytest.mark.parametrize(
    ("accuracies", "losses", "num_scores"),
    [
        # Improvements, then a plateau: three evaluations without any, after half of the steps.
        ([0.6, 0.7] + [0.7] * 18, [0.6, 0.5] + [0.5] * 18, 12),
        ([0.6, 0.7] + [0.7] * 11 + [0.8] * 7, [0.5] * 20, 12),
        ([0.7] + [0.6] * 19, [0.6] * 11 + [0.59] + [0.7] * 8, 15),  # a new lowest loss
        ([0.7] + [0.6] * 19, [0.5] * 11 + [0.6, 0.59] + [0.6] * 7, 12),  # low, but not the lowest
        ([0.7] + [0.6] * 10 + [0.71] + [0.6] * 8, [0.6] * 20, 15),  # a new best score
        ([0.6] + [0.5] * 19, [0.5] * 20, 20),  # falls back to the majority after some luck
        ([0.6] * 11 + [0.5] + [0.6] * 8, [0.5] * 20, 15),
        ([0.7, 1.0] + [1.0] * 18, [0.5, *(0.4 - n / 100 for n in range(19))], 5),  # perfect
        ([1.0] + [0.4] * 19, [0.5] * 20, 4),
    ],
)
def test_a_run_stops_where_neither_score_nor_loss_improve(
    accuracies: list[float], losses: list[float], num_scores: int
):
    config, majority = FinetuneConfig(patience=3, warmup_share=0.0), {"accuracy": 0.5}
    stopping = EarlyStopping(config, 20, "accuracy", majority)
    scores = [
        {"accuracy": accuracy, "valid_loss": loss}
        for accuracy, loss in zip(accuracies, losses, strict=True)
    ]
    assert count_until_end(stopping, scores) == num_scores


def count_until_end(stopping: EarlyStopping, scores: list[dict[str, float]]) -> int:
    for step, found in enumerate(scores, start=1):
        stopping.note(step, found)
        if stopping.has_ended:
            return step
    return len(scores)


def test_early_stopping_spares_the_warmup_and_may_be_off():
    config, same = FinetuneConfig(patience=2, warmup_share=0.8), {"spearman": 0.5, "valid_loss": 1}
    stopping = EarlyStopping(config, 10, "spearman")
    assert count_until_end(stopping, [same] * 10) == 9
    never = EarlyStopping(replace(config, patience=0), 1, "spearman")
    assert count_until_end(never, [same] * 9) == 9
    assert not never.has_ended


@pytest.mark.parametrize(
    ("task", "metric", "num_labels", "message"),
    [
        ("classification", "f1", 3, "is not a metric of classification of 3 labels"),
        ("classification", "spearman", 2, "is not a metric"),
        ("multilabel", "matthews", 2, "is not a metric of multilabel"),
        ("regression", "accuracy", 1, "Choose from mean_squared_error, spearman, pearson"),
        ("tokens", "macro_f1", 5, "Choose from span_f1, accuracy"),
    ],
)
def test_metrics_without_a_meaning_are_refused(
    task: str, metric: Metric, num_labels: int, message: str
):
    with pytest.raises(ConfigError, match=message):
        choose_metrics(load_label_task(task), Labels(("O",) * num_labels), metric)
    assert choose_metrics(load_label_task("classification"), Labels(("a", "b")), "f1")[0] == "f1"


def test_parts_of_speech_are_scored_by_accuracy(tmp_path: Path):
    lines = ["the DET\ncat NOUN\nsees VERB\n", "dogs NOUN\nsee VERB\ntrees NOUN\n"] * 20
    (tmp_path / "pos.conll").write_text("\n".join(lines))
    (tmp_path / "valid.conll").write_text(lines[0])
    files = TaskFiles(task="tokens", train=tmp_path / "pos.conll", valid=tmp_path / "valid.conll")
    assert read_task(files, make_loaded(), CONFIG).deciding == "accuracy"


def test_long_sentences_are_scored_as_wholes(tmp_path: Path):
    """An entity that is cut in two pieces is one entity."""
    (tmp_path / "long.conll").write_text("\n".join(["cat I-animal"] * 40 + ["", "dogs O"]))
    files = TaskFiles(task="tokens", train=tmp_path / "long.conll", valid=tmp_path / "long.conll")
    loaded = make_loaded()
    data = read_task(files, loaded, replace(CONFIG, max_length=16))
    assert len(data.valid) > 2
    assert data.valid.sentences is not None
    answers = [[1] * len(words) for _, words in data.valid.sentences.owners]
    answers[-1] = [0]
    joined = data.valid.sentences.join(answers)
    scores = score_tags(data.labels, data.valid.sentences.targets, joined)
    assert scores["span_f1"] == 1
    spans = find_entities([data.labels.names[n] for n in joined[0]])
    assert len(spans) == 1


def test_a_loss_that_is_not_finite_ends_the_run(nouns: Path):
    loaded = make_loaded()
    config = FinetuneConfig(learning_rate=1e30, grad_clip=0, device="cpu")
    data = read_task(TaskFiles(task="classification", train=nouns, columns=LABELS), loaded, config)
    with pytest.raises(TrainingError, match=r"step \d+ is not finite. Try a lower learning_rate"):
        train_seeds(data, loaded.model, config, CPU)


def read_nouns(nouns: Path, share: float) -> TaskData:
    files = TaskFiles(task="classification", train=nouns, columns=LABELS, valid_share=share)
    return read_task(files, make_loaded(), CONFIG)


def test_too_few_examples_are_an_error(tmp_path: Path):
    with pytest.raises(CorpusError, match="too few examples for training and validation"):
        read_nouns(write_nouns(tmp_path / "one.tsv", 1), 0.5)


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("classification", "sentence1\tlabel\n", r"a\.tsv holds no examples"),
        (
            "classification",
            "sentence1\tlabel\n" + "".join(f"the cat {n}\t{n}\n" for n in range(30)),
            "each of its 30 examples has a different label. Check --columns label=",
        ),
        (
            "tokens",
            "sentence1\tlabel\n" + "the cat\tanimal\n" * 30,
            "holds one sentence of 31 words. Separate sentences by blank lines",
        ),
    ],
)
def test_why_nothing_can_be_learned_is_said(task: str, content: str, message: str, tmp_path: Path):
    (tmp_path / "a.tsv").write_text(content)
    columns = LABELS if task == "classification" else {}
    files = TaskFiles(task=task, train=tmp_path / "a.tsv", columns=columns)
    with pytest.raises(CorpusError, match=message):
        read_task(files, make_loaded(), CONFIG)


def test_files_of_no_examples_are_named(nouns: Path, tmp_path: Path):
    (tmp_path / "none.tsv").write_text("sentence1\tlabel\n")
    files = TaskFiles(task="classification", train=nouns, columns=LABELS)
    for name in ("valid", "test"):
        with pytest.raises(CorpusError, match=r"none\.tsv holds no examples"):
            read_task(replace(files, **{name: tmp_path / "none.tsv"}), make_loaded(), CONFIG)


def test_a_model_of_no_numbers_is_not_kept(nouns: Path):
    """Also if the loss of its last step was a number."""
    loaded = make_loaded()
    config = replace(CONFIG, epochs=0.01, learning_rate=1e38, warmup_share=0.0, device="cpu")
    for task, label in (("classification", "label"), ("regression", "value")):
        files = TaskFiles(task=task, train=nouns, columns={**LABELS, "label": label})
        data = read_task(files, loaded, config)
        with pytest.raises(TrainingError, match=r"held-out .* not finite\. Try a lower learning_r"):
            train_seeds(data, loaded.model, config, CPU)


def test_a_run_is_scored_at_least_once(nouns: Path):
    loaded = make_loaded()
    config = replace(CONFIG, epochs=0.2, evaluations_an_epoch=1e-308, device="cpu")
    data = read_task(TaskFiles(task="classification", train=nouns, columns=LABELS), loaded, config)
    [run] = train_seeds(data, loaded.model, config, CPU).runs
    assert [record["step"] for record in run.history] == [run.num_steps]


def test_the_largest_numbers_are_learned(tmp_path: Path):
    lines = write_nouns(tmp_path / "train.tsv", 700).read_text().splitlines()
    sizes = [f"{1 - 2 * ('cat' in line)}e18" for line in lines[1:]]
    rows = [f"{line}\t{size}" for line, size in zip(lines[1:], sizes, strict=True)]
    (tmp_path / "train.tsv").write_text("\n".join([f"{lines[0]}\tsize", *rows]) + "\n")
    config, loaded = replace(CONFIG, epochs=1.0, device="cpu"), make_loaded()
    columns = {"sentence1": "sentence1", "label": "size"}
    files = TaskFiles(task="regression", train=tmp_path / "train.tsv", columns=columns)
    [run] = train_seeds(read_task(files, loaded, config), loaded.model, config, CPU).runs
    assert run.scores["pearson"] > 0.5
    for name in ("mean_squared_error", "valid_loss"):
        assert 0 < run.scores[name] < 1e36


def write_cities(path: Path, others: str, held_out: str) -> TaskFiles:
    """Texts with labels of which one that is held out has its own."""
    texts = [f"the cat {number}" for number in range(200)]
    chosen = min(hold_out([[text] for text in texts], [()] * 200, 0.1)[1])
    rows = [f"{text}\t{held_out if text == chosen else others}" for text in texts]
    path.write_text("\n".join(["sentence1\tlabel", *rows, "a dog\tBoston, MA"]) + "\n")
    return TaskFiles(task="multilabel", train=path, columns=LABELS)


def test_all_rows_of_a_file_choose_what_separates_its_labels(tmp_path: Path):
    path = tmp_path / "train.tsv"
    data = read_task(write_cities(path, "New York|NY", "New York, NY"), make_loaded(), CONFIG)
    assert data.labels.names == ("Boston, MA", "NY", "New York", "New York, NY")
    assert data.labels.counts == (1, len(data.train) - 2, len(data.train) - 2, 1)
    files = write_cities(path, "New York, NY", "New York, NY|Boston, MA")
    data = read_task(files, make_loaded(), CONFIG)  # the only row with a bar is held out
    assert data.labels.names == ("Boston, MA", "New York, NY")
    assert [1, 1] in np.asarray(data.valid.targets).tolist()


def test_only_texts_that_are_compared_are_inputs_of_their_own(nouns: Path, tmp_path: Path):
    """Also in a model that was fine-tuned before, to compare texts."""
    columns = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
    files = TaskFiles(task="classification", train=nouns, columns=columns)
    loaded = make_loaded()
    comparing = replace(CONFIG, pooling="bi")
    model = build_classifier(loaded.model, comparing, "text", 2, seed=0)
    folder, names = tmp_path / "model", ("animal", "thing")
    save_classifier(folder, model, TOKENIZER, names, "single_label_classification")
    inputs = {
        (pooling, source): read_task(files, opened, replace(CONFIG, pooling=pooling)).train.inputs
        for source, opened in (("pretrained", loaded), ("tuned", open_pretrained(folder)))
        for pooling in ("bi", "cls")
    }
    for pooling, num_first in (("bi", 2), ("cls", 1)):
        assert inputs[pooling, "tuned"] == inputs[pooling, "pretrained"]
        assert inputs[pooling, "tuned"][0].ids.count(TOKENIZER.cls_id) == num_first
    again, ordinary = tmp_path / "again", open_pretrained(folder)
    model = build_classifier(ordinary.model, replace(CONFIG, pooling="cls"), "text", 2, seed=0)
    save_classifier(again, model, ordinary.tokenizer, names, "single_label_classification")
    pair = {
        path: open_classifier(path).tokenizer.backend.encode("the cat", "the").ids
        for path in (folder, again)
    }
    assert [ids.count(TOKENIZER.cls_id) for ids in pair.values()] == [2, 1]


def test_words_without_tokens_are_named(tmp_path: Path):
    train = write_tags(tmp_path / "train.conll")
    valid = tmp_path / "valid.conll"
    valid.write_text("\n\u200b O\n\u200b O\n")
    for files in (
        TaskFiles(task="tokens", train=train, valid=valid),
        TaskFiles(task="tokens", train=train, test=valid),
    ):
        with pytest.raises(CorpusError, match=r"valid\.conll:2: no word .*--columns word="):
            read_task(files, make_loaded(), CONFIG)


def test_examples_that_are_also_in_training_are_counted(nouns: Path, tmp_path: Path):
    tags, count = write_tags(tmp_path / "a.conll"), len(nouns.read_text().splitlines()) - 1
    files = TaskFiles(task="classification", train=nouns, test=nouns, columns=LABELS)
    note = read_task(files, make_loaded(), CONFIG).task.notes[-1]
    assert note.startswith(f"{count} of {count} test examples are also in training or validation")
    files = TaskFiles(task="tokens", train=tags, valid=tags)
    note = read_task(files, make_loaded(), CONFIG).task.notes[-1]
    assert note.startswith("120 of 120 validation examples are also in training")


@pytest.mark.parametrize("task", ["classification", "multilabel", "tokens"])
@pytest.mark.parametrize(
    ("one", "other"),
    [("Spam", "spam"), ("Sport", "\uff33port"), ("file", "\ufb01le"), ("Stra\u00dfe", "STRASSE")],
)
def test_labels_that_differ_by_width_or_case_are_one(
    task: str, one: str, other: str, tmp_path: Path
):
    path = tmp_path / "a.tsv"
    # Words that the tokenizer knows.
    kinds = (("cat", one), ("dog", one), ("tree", other), ("sleep", "ham"))
    ends = ascii_lowercase[:20]
    if task == "tokens":
        path = tmp_path / "a.conll"
        lines = "".join(f"{word}{end}\tB-{label}\n\n" for end in ends for word, label in kinds)
    else:
        lines = "sentence1\tlabel\n"
        lines += "".join(f"{word} {end}\t{label}\n" for end in ends for word, label in kinds)
    path.write_text(lines, encoding="utf-8")
    columns = {} if task == "tokens" else LABELS
    data = read_task(TaskFiles(task=task, train=path, columns=columns), make_loaded(), CONFIG)
    prefix = "B-" if task == "tokens" else ""
    assert data.labels.names == tuple(sorted(f"{prefix}{name}" for name in (one, "ham")))
    assert f"{prefix}{other} as {prefix}{one}" in " ".join(data.task.notes)
    valid = tmp_path / f"valid{path.suffix}"
    valid.write_text(lines.replace(one, other), encoding="utf-8")
    files = TaskFiles(task=task, train=path, valid=valid, columns=columns)
    again = read_task(files, make_loaded(), CONFIG)
    assert again.labels == data.labels or sum(again.labels.counts) == 80
    assert again.baselines["bag of words"][data.deciding] == 1


def test_contradictions_and_repetitions_are_counted(tmp_path: Path):
    path = tmp_path / "a.tsv"
    rows = [f"text {n}\t{label}" for n in range(30) for label in ("yes", "no")]
    rows += ["text 0\tyes"] * 2 + [f"other {n}\tyes" for n in range(8)]
    path.write_text("\n".join(["sentence1\tlabel", *rows]) + "\n")
    valid = tmp_path / "b.tsv"
    valid.write_text("sentence1\tlabel\nother 1\tno\nnew text\tyes\n")
    files = TaskFiles(task="classification", train=path, valid=valid, columns=LABELS)
    notes = read_task(files, make_loaded(), CONFIG).task.notes
    assert [note.partition(":")[0] for note in notes] == [
        "31 texts of 39 have contradicting labels",
        "2 of 70 training examples repeat an earlier one.",
        "1 of 2 validation examples are also in training",
    ]


@pytest.mark.parametrize("task", ["classification", "tokens"])
def test_examples_of_one_text_are_not_too_few(task: str, tmp_path: Path):
    path = tmp_path / ("a.conll" if task == "tokens" else "a.tsv")
    rows = ["w O\nv B-X\n"] * 40 if task == "tokens" else ["sentence1\tlabel"]
    rows += [] if task == "tokens" else [f"one text\t{n % 2}" for n in range(40)]
    path.write_text("\n".join(rows) + "\n")
    columns = {} if task == "tokens" else LABELS
    files = TaskFiles(task=task, train=path, columns=columns)
    with pytest.raises(CorpusError, match="has 40 examples of one text"):
        read_task(files, make_loaded(), CONFIG)
