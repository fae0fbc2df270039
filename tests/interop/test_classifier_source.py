"""Fine-tuned models in transformers and onnxruntime, on examples of their task."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.errors import CorpusError, ExportError, InputError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.interop import classifier_source as classifier
from maskwright.interop.classifier_source import ExampleFile, choose_examples
from maskwright.interop.export import ExportResult, export
from maskwright.interop.onnx import GRAPH, OnnxModel
from maskwright.interop.targets import Int8Scores
from maskwright.model.classifier import Classifier
from maskwright.model.config import Level, Pooling, ProblemType
from maskwright.model_folder.classifier_folder import open_classifier, save_classifier
from maskwright.model_folder.folder import open_model
from maskwright.tokenizer.words import WordRule
from tests.interop.models import NATIVE, OWN, write_model

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

ANIMALS, PLACES = ("cat", "dog", "bird", "tree"), ("mat", "tree", "house")
LABELS = ("bad", "good", "odd")


def write_classifier(
    folder: Path,
    preset: dict[str, Any],
    *,
    level: Level = "text",
    labels: tuple[str, ...] = LABELS,
    problem: ProblemType = "single_label_classification",
    pooling: Pooling | None = None,
) -> Path:
    """Write a classifier whose answers to the examples differ."""
    loaded = open_model(write_model(folder.parent / "pretrained", preset))
    config = FinetuneConfig(pooling=pooling)
    model = build_classifier(loaded.model, config, level, len(labels), seed=0)
    with torch.no_grad():
        model.head.output.weight.mul_(20)
    words = WordRule("blanks", 9) if level == "token" else None
    save_classifier(folder, model, loaded.tokenizer, labels, problem, words=words)
    return folder


def write_table(
    path: Path, labels: tuple[str, ...] = LABELS, *, pairs: bool = False
) -> ExampleFile:
    lines = ["sentence1\tsentence2\tlabel"]
    for number in range(60):
        animal, place = ANIMALS[number % 4], PLACES[number // 4 % 3]
        text = f"the {animal} sat {'on the ' * (number % 5)}{place}"
        lines.append(f"{text}\ta {place} for the {animal}\t{labels[number % len(labels)]}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {"sentence1": "sentence1", "label": "label"}
    return ExampleFile(path, {**columns, "sentence2": "sentence2"} if pairs else columns)


def write_tags(path: Path) -> ExampleFile:
    sentences = [
        f"the O\n{animal} B-{'LIVING' if number % 2 else 'THING'}\nsat O\n" + "on O\n" * number
        for number, animal in enumerate(ANIMALS * 5)
    ]
    path.write_text("\n".join(sentences), encoding="utf-8")
    return ExampleFile(path, {"word": 0, "tag": -1})


def test_pairs_have_the_same_logits_in_both_libraries(tmp_path: Path):
    model = write_classifier(tmp_path / "model", NATIVE["bert"])
    file = write_table(tmp_path / "examples.tsv", pairs=True)
    for to in ("hf", "onnx"):
        report = export(model, to, tmp_path / to, data=file)
        assert report.comparison.largest <= 1e-4
        assert report.comparison.num_texts == 60
        assert report.source == "examples.tsv"
    assert "token_type_ids" in OnnxModel(tmp_path / "onnx" / GRAPH).inputs
    config = json.loads((tmp_path / "onnx/config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good", "2": "odd"}
    card = (tmp_path / "onnx/README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "token_type_ids" in card


@pytest.mark.parametrize(("preset", "pooling"), [(OWN, "mean"), (NATIVE["bert"], "bi")])
def test_a_classifier_of_our_own_goes_to_onnx_alone(
    preset: dict[str, Any], pooling: Pooling, tmp_path: Path
):
    file = write_table(tmp_path / "examples.tsv", ("1", "2.5", "0"), pairs=True)
    labels = ("score",)
    model = write_classifier(
        tmp_path / "model", preset, labels=labels, problem="regression", pooling=pooling
    )
    with pytest.raises(ExportError, match=r"no class of transformers .* to onnx"):
        export(model, "hf", tmp_path / "hf")
    if pooling == "mean":  # the score of random weights changes easily
        report = export(model, "onnx-int8", tmp_path / "int8", data=file, max_loss=0.1)
        check_int8(report, "60 examples of examples.tsv", "spearman")
    else:
        report = export(model, "onnx", tmp_path / "onnx", data=file)
    assert report.comparison.largest <= 1e-4


def test_tags_are_the_same_and_int8_is_scored_on_them(tmp_path: Path):
    labels = ("O", "B-LIVING", "B-THING")
    model = write_classifier(tmp_path / "model", NATIVE["eurobert"], level="token", labels=labels)
    file = write_tags(tmp_path / "tags.conll")
    assert export(model, "hf", tmp_path / "hf", data=file).comparison.largest <= 1e-4
    assert open_classifier(tmp_path / "hf").words == WordRule("blanks", 9)
    report = export(model, "onnx-int8", tmp_path / "int8", data=file)
    check_int8(report, "20 examples of tags.conll", "span_f1")
    assert "pipeline_tag: token-classification" in (tmp_path / "int8/README.md").read_text()


def test_several_labels_are_the_same_and_static_int8_is_scored_on_them(tmp_path: Path):
    model = write_classifier(
        tmp_path / "model", NATIVE["eurobert"], problem="multi_label_classification", pooling="late"
    )
    built_in = export(model, "hf", tmp_path / "hf")
    assert built_in.source == "pydocs"
    assert built_in.comparison.num_texts > 20
    assert built_in.comparison.largest <= 1e-4
    assert open_classifier(tmp_path / "hf").labels == LABELS
    file = write_table(tmp_path / "examples.tsv")
    report = export(model, "onnx-int8", tmp_path / "static", data=file, calibrate=file.path)
    check_int8(report, "60 examples of examples.tsv", "micro_f1")
    assert report.int8 is not None
    assert report.int8.recipe.startswith("static")
    with pytest.raises(InputError, match=r"--calibrate = nowhere\.tsv "):
        export(model, "onnx-int8", tmp_path / "out", data=file, calibrate="nowhere.tsv")


def check_int8(report: ExportResult, questions: str, metric: str) -> None:
    assert report.int8 is not None
    assert (report.int8.questions, report.int8.metric) == (questions, metric)
    assert 0.9 <= report.int8.same <= 1
    assert np.isfinite([report.int8.score_fp32, report.int8.score_int8]).all()
    assert report.int8.bytes_int8 < report.int8.bytes_fp32
    assert "model_quantized.onnx" in report.files
    assert questions in "\n".join(report.describe())


def test_int8_without_examples_and_vectors_are_refused(tmp_path: Path):
    model = write_classifier(tmp_path / "model", NATIVE["bert"])
    with pytest.raises(InputError, match=r"labeled examples .*--data"):
        export(model, "onnx-int8", tmp_path / "out")
    with pytest.raises(ExportError, match=r"no sentence vectors\. Export it to hf"):
        export(model, "sentence-transformers", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_examples_are_read_as_the_task_reads_them(tmp_path: Path):
    triplets, bars, table = (tmp_path / f"{name}.tsv" for name in ("triplets", "bars", "table"))
    triplets.write_text("query\tpassage\tnegative\nthe cat\tsat\tthe tree\n")
    bars.write_text("sentence1\tlabel\nthe cat\tbad|good\nthe dog\todd\n")
    model = write_classifier(
        tmp_path / "a", NATIVE["eurobert"], labels=("score",), problem="regression"
    )
    columns = {"sentence1": "query", "sentence2": "passage", "negative": "negative"}
    ranked = choose_examples(open_classifier(model), ExampleFile(triplets, columns, task="ranking"))
    assert ranked.task.name == "ranking"
    assert np.asarray(ranked.encoded.targets).tolist() == [1, 0]
    model = write_classifier(
        tmp_path / "b", NATIVE["eurobert"], problem="multi_label_classification"
    )
    named = {"sentence1": "sentence1", "label": "label"}
    found = choose_examples(open_classifier(model), ExampleFile(bars, named))
    assert np.asarray(found.encoded.targets).tolist() == [[1, 1, 0], [0, 0, 1]]
    tagger = write_classifier(tmp_path / "c", NATIVE["bert"], level="token", labels=("O", "X"))
    table.write_text("label\nO\n")
    with pytest.raises(InputError, match="labels words"):
        choose_examples(open_classifier(tagger), ExampleFile(table, {"label": "label"}))


def test_examples_that_do_not_fit_are_refused(tmp_path: Path):
    model = write_classifier(tmp_path / "model", NATIVE["bert"])
    file = write_table(tmp_path / "other.tsv", ("good", "unheard"))
    with pytest.raises(CorpusError, match=r"other\.tsv:3 has the label unheard"):
        export(model, "onnx", tmp_path / "out", data=file)
    with pytest.raises(InputError, match=r"other\.tsv has no column label"):
        choose_examples(open_classifier(model), replace(file, columns={"sentence1": "sentence1"}))


def test_another_function_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = write_classifier(tmp_path / "model", NATIVE["bert"])
    real = classifier.compute_logits

    def compute_another(network: Classifier, *arguments: Any) -> Any:
        with torch.no_grad():
            network.head.output.bias[0] += 1
        return real(network, *arguments)

    monkeypatch.setattr(classifier, "compute_logits", compute_another)
    with pytest.raises(ExportError, match="logits differ by up to 1"):
        export(model, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("milliseconds", "size", "said"),
    [
        (9.0, 90, None),
        (11.0, 90, "int8 is no faster on this machine than"),
        (9.0, 101, "int8 is no smaller than"),
        (11.0, 101, "int8 is no smaller and no faster on this machine than"),
    ],
)
def test_int8_that_is_no_gain_says_so(milliseconds: float, size: int, said: str | None):
    scores = Int8Scores(
        "", "4 masks", "accuracy", 1, 1, "same", 1, 10.0, milliseconds, 8, 16, 100, size
    )
    lines = scores.describe()
    assert len(lines) == 2 + (said is not None)
    assert said is None or lines[-1].startswith(said)
