from pathlib import Path

import pytest
import torch

from maskwright.artifact.classifier_folder import open_classifier, save_classifier
from maskwright.artifact.folder import open_model, save_model
from maskwright.errors import CorpusError, ModelFolderError, TrainingError
from maskwright.finetune.config import PROBLEMS, FinetuneConfig, Task
from maskwright.finetune.network import build_classifier
from maskwright.finetune.predict import Predictor
from maskwright.finetune.tables import LabelledRow
from maskwright.finetune.task import Problem, TaskFiles, is_held_out, read_task, run_task
from tests.finetune.helpers import TOKENIZER, make_loaded, write_nouns, write_tags

CONFIG = FinetuneConfig(
    epochs=30, batch_size=16, learning_rate=3e-3, layer_decay=1.0, dropout=0.0, patience=0
)
CPU = torch.device("cpu")
LABELS = {"sentence1": "sentence1", "label": "label"}


def silent(record: dict) -> None:
    pass


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
    task: Task, columns: dict, metric: str, least: float, nouns: Path, tmp_path: Path
) -> None:
    loaded = make_loaded()
    problem = read_task(TaskFiles(task, nouns, columns=columns), loaded, CONFIG)
    outcome = run_task(problem, loaded.model, CONFIG, CPU, silent)
    assert outcome.summarise()[metric].mean >= least
    assert problem.baselines["majority"][metric] < least
    names = problem.material.labels.names
    save_classifier(tmp_path / "model", outcome.model, TOKENIZER, names, PROBLEMS[task])
    predict = Predictor(tmp_path / "model", "cpu")
    assert predict.loaded.problem == PROBLEMS[task]
    pairs = "sentence2" in columns
    texts = [("the cat sees", "the") if pairs else "the cat sees"]
    [answer] = predict(texts)
    expected = {"multilabel": ["animal"], "regression": pytest.approx(1, abs=0.5)}
    assert answer.label == expected.get(task, "animal")


def test_tags_are_learned_saved_and_answered(tmp_path: Path) -> None:
    loaded = make_loaded()
    files = TaskFiles("tokens", write_tags(tmp_path / "train.conll"))
    problem = read_task(files, loaded, CONFIG)
    outcome = run_task(problem, loaded.model, CONFIG, CPU, silent)
    assert outcome.summarise()["span_f1"].mean > 0.95
    assert problem.baselines["majority"]["span_f1"] == 0
    assert problem.baselines["bag of words"]["span_f1"] > 0.95
    names = problem.material.labels.names
    save_classifier(tmp_path / "model", outcome.model, TOKENIZER, names, PROBLEMS["tokens"])
    predict = Predictor(tmp_path / "model", "cpu")
    [tags] = predict.tag([["the", "cat", "sees", "x-ray"]])
    assert [answer.label for answer in tags] == ["O", "I-animal", "O", "I-thing"]


def test_seeds_are_runs_of_their_own_and_give_the_same_again(nouns: Path) -> None:
    loaded = make_loaded()
    config = FinetuneConfig(epochs=1, seeds=2, device="cpu")
    problem = read_task(TaskFiles("classification", nouns, columns=LABELS), loaded, config)
    first, second = (run_task(problem, loaded.model, config, CPU, silent) for _ in range(2))
    losses = [[run.history[-1]["loss"] for run in outcome.runs] for outcome in (first, second)]
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]
    assert first.summarise()["accuracy"].deviation is not None


def test_the_weights_that_scored_best_are_kept(nouns: Path) -> None:
    loaded = make_loaded()
    config = FinetuneConfig(epochs=30, learning_rate=3e-3, patience=2, device="cpu")
    problem = read_task(TaskFiles("classification", nouns, columns=LABELS), loaded, config)
    [run] = run_task(problem, loaded.model, config, CPU, silent).runs
    assert run.num_steps < 30 * 6  # no score gets better than all right
    best = max(run.history, key=lambda record: record["accuracy"])
    assert (run.best_step, run.scores["accuracy"]) == (best["step"], best["accuracy"])


def test_a_loss_that_is_not_finite_ends_the_run(nouns: Path) -> None:
    loaded = make_loaded()
    config = FinetuneConfig(learning_rate=1e30, grad_clip=0, device="cpu")
    problem = read_task(TaskFiles("classification", nouns, columns=LABELS), loaded, config)
    with pytest.raises(TrainingError, match=r"step \d+ is not finite. Try a lower learning_rate"):
        run_task(problem, loaded.model, config, CPU, silent)


def read_nouns(nouns: Path, share: float) -> Problem:
    files = TaskFiles("classification", nouns, columns=LABELS, valid_share=share)
    return read_task(files, make_loaded(), CONFIG)


def test_examples_are_held_out_by_their_text(nouns: Path) -> None:
    material = read_nouns(nouns, 0.3).material
    assert len(material.train) + len(material.valid) == 200
    trained = {tuple(one.ids) for one in material.train.inputs}
    assert not trained & {tuple(one.ids) for one in material.valid.inputs}


def test_too_few_examples_are_an_error(nouns: Path) -> None:
    with pytest.raises(CorpusError, match="too few examples to train and to score on"):
        read_nouns(nouns, 1e-9)


def test_a_share_of_the_examples_is_about_that_share() -> None:
    rows = [LabelledRow("", {"sentence1": str(n), "label": ""}) for n in range(2000)]
    assert 140 < sum(is_held_out(row, 0.1) for row in rows) < 260


def test_other_folders_are_refused(tmp_path: Path) -> None:
    loaded = make_loaded()
    save_model(tmp_path / "mlm", loaded.model, TOKENIZER)
    with pytest.raises(ModelFolderError, match=r"is no model that labels anything.*finetune"):
        open_classifier(tmp_path / "mlm")
    model = build_classifier(loaded.model, CONFIG, "text", 2, seed=0)
    save_classifier(
        tmp_path / "labels", model, TOKENIZER, ("a", "b"), "single_label_classification"
    )
    with pytest.raises(ModelFolderError, match=r"labels texts .*maskwright predict takes it"):
        open_model(tmp_path / "labels")
