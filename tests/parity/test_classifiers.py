"""Classifiers of ours are classes of transformers: equal outputs, ways there and back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from maskwright.config import from_mapping
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier, compute_logits
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.span_task import encode_questions
from maskwright.model.config import Level, ModelConfig, Pooling, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.classifier_folder import open_classifier, save_classifier
from maskwright.model_folder.families import list_classifiers, native_classifier
from tests.golden.pseudo_likelihood import make_tokenizer
from tests.interop.models import OWN

TOKENIZER = make_tokenizer()
TEXTS = ["the cat sees the dog", "dog sleeps", "the", "the [MASK] sees[SEP] a [CLS] [UNK]."]
PAIRS = [("the cat", "sleeps"), ("the dog sees the cat", "the cat"), ("the[SEP]dog", "[MASK]")]
LABELS = ("bad", "good", "odd")
OF_TEXTS = list_classifiers("text")
FAMILIES = sorted(set(OF_TEXTS) - {"maskwright"})


def make_pretrained(model_type: str) -> MaskedLanguageModel:
    sizes = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 48, "initializer_range": 0.2, "init_output": "normal",
    }  # fmt: skip
    preset = "roberta" if model_type in ("xlm-roberta", "camembert") else model_type
    fields = OWN if model_type == "maskwright" else {"preset": preset}
    config = resolve_config(
        from_mapping(ModelConfig, {**sizes, **fields}),
        vocab_size=TOKENIZER.vocab_size,
        max_seq_length=40,
        pad_token_id=TOKENIZER.pad_id,
    )
    model = MaskedLanguageModel(replace(config, model_type=model_type))
    initialize(model, 1)
    return model.eval()


def save(folder: Path, model_type: str, level: Level, pooling: Pooling = "cls") -> None:
    config, labels = FinetuneConfig(pooling=pooling), LABELS[: 2 if level == "span" else 3]
    pretrained = make_pretrained(model_type)
    model = build_classifier(pretrained, config, level, len(labels), seed=2).eval()
    with torch.no_grad():
        model.head.output.weight.mul_(20)  # so that answers differ
    save_classifier(folder, model, TOKENIZER, labels, "single_label_classification")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_texts_have_the_same_logits_there(model_type: str, tmp_path: Path) -> None:
    save(tmp_path / "model", model_type, "text")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert type(theirs).__name__ == OF_TEXTS[model_type].family.architecture
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    predict = Predictor(tmp_path / "model", "cpu")
    for texts in (TEXTS, PAIRS):
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        with torch.no_grad():
            expected = theirs(**inputs).logits.softmax(-1).numpy()
        found = np.array([list(answer.probabilities.values()) for answer in predict(texts)])
        assert found == pytest.approx(expected, abs=1e-5)
        assert np.ptp(found) > 0.05


@pytest.mark.parametrize("model_type", FAMILIES)
def test_tokens_have_the_same_logits_there(model_type: str, tmp_path: Path) -> None:
    save(tmp_path / "model", model_type, "token")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    predict = Predictor(tmp_path / "model", "cpu")
    words = [text.split() for text in TEXTS]
    for sentence, answers in zip(words, predict.tag(words), strict=True):
        inputs = tokenizer(" ".join(sentence), return_tensors="pt")
        with torch.no_grad():
            expected = theirs(**inputs).logits[0].softmax(-1).numpy()
        begins = np.cumsum([0, *(len(word) + 1 for word in sentence[:-1])])
        first = [inputs.char_to_token(int(begin)) for begin in begins]
        found = np.array([list(answer.probabilities.values()) for answer in answers])
        assert found == pytest.approx(expected[first], abs=1e-5)


def test_a_cross_encoder_gives_our_scores(tmp_path: Path) -> None:
    model = build_classifier(make_pretrained("bert"), FinetuneConfig(), "text", 1, seed=2).eval()
    save_classifier(tmp_path, model, TOKENIZER, ("score",), "regression", num_texts=2)
    theirs = CrossEncoder(str(tmp_path), device="cpu").predict(PAIRS)
    ours = [answer.label for answer in Predictor(tmp_path, "cpu")(PAIRS)]
    assert np.array(ours, float) == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("model_type", list_classifiers("span"))
def test_spans_have_the_same_logits_there(model_type: str, tmp_path: Path) -> None:
    save(tmp_path / "model", model_type, "span")
    loaded = open_classifier(tmp_path / "model")
    if model_type == "maskwright":
        assert loaded.model.head_config.level == "span"
        return
    theirs = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model").eval()
    assert type(theirs).__name__ == list_classifiers("span")[model_type].family.architecture
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    examples = encode_questions(PAIRS, loaded.tokenizer, loaded.max_length, may_be_empty=False)
    assert examples.positions is not None
    found = compute_logits(loaded.model, examples, TOKENIZER.pad_id, "fp32")
    for pair, logits, positions in zip(PAIRS, found, examples.positions, strict=True):
        with torch.no_grad():
            outputs = theirs(**tokenizer(*pair, return_tensors="pt"))
        expected = torch.stack([outputs.start_logits[0], outputs.end_logits[0]], -1)[positions]
        assert logits == pytest.approx(expected.numpy(), abs=1e-4)
        assert np.ptp(logits) > 0.05


@pytest.mark.parametrize(
    ("model_type", "pooling"),
    [
        (name, pooling)
        for name in ("modernbert", "eurobert")
        for pooling in OF_TEXTS[name].head.poolings
    ],
)
def test_poolings_are_theirs(model_type: str, pooling: Pooling, tmp_path: Path) -> None:
    save(tmp_path / "model", model_type, "text", pooling)
    assert open_classifier(tmp_path / "model").model.head_config.pooling == pooling
    ask = pipeline("text-classification", str(tmp_path / "model"), top_k=None)
    predict = Predictor(tmp_path / "model", "cpu")
    for text, answer in zip(TEXTS, predict(TEXTS), strict=True):
        answers: Any = ask([text])
        expected = {one["label"]: one["score"] for one in answers[0]}
        assert dict(answer.probabilities) == pytest.approx(expected, abs=1e-5)


def test_what_transformers_wrote_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "model", "bert", "text")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "theirs")
    ours, back = open_classifier(tmp_path / "model"), open_classifier(tmp_path / "theirs")
    assert back.labels == ours.labels == LABELS
    for (name, one), other in zip(
        ours.model.named_parameters(), back.model.parameters(), strict=True
    ):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("model_type", ["roberta", "xlm-roberta", "camembert"])
def test_a_pooler_that_their_class_does_not_use_is_ignored(model_type: str, tmp_path: Path) -> None:
    """As in the folder of roberta-large-mnli."""
    save(tmp_path / "model", model_type, "text")
    file = tmp_path / "model" / "model.safetensors"
    before, tensors = open_classifier(tmp_path / "model"), load_file(file)
    tensors["roberta.pooler.dense.weight"] = torch.ones(32, 32)
    tensors["roberta.pooler.dense.bias"] = torch.ones(32)
    save_file(tensors, file, metadata={"format": "pt"})
    after = open_classifier(tmp_path / "model").model.state_dict()
    for name, tensor in before.model.state_dict().items():
        assert torch.equal(tensor, after[name]), name


def test_an_encoder_without_a_class_there_is_saved_in_our_own_names(tmp_path: Path) -> None:
    native, reason = native_classifier(make_pretrained("maskwright").config, "text")
    assert native == OF_TEXTS["maskwright"]
    assert "has no" in reason
    save(tmp_path / "model", "maskwright", "text", "mean")
    assert open_classifier(tmp_path / "model").model.head_config.pooling == "mean"
