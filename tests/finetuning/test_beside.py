"""The linear model beside an encoder: its features are scikit-learn's, and it is plain data."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.errors import ModelFolderError
from maskwright.finetuning.baselines import count_words, fit_vectorizer
from maskwright.finetuning.beside import (
    FOLDER_NAME,
    Beside,
    Weights,
    Words,
    compute_vectors,
    describe_beside,
    open_embedder,
)
from maskwright.model_folder.folder import save_model
from tests.finetuning.helpers import TOKENIZER, make_loaded

TEXTS = [
    ["The old cat sees a cat.", "the DOG sees"],
    ["ÉTÉ à la  plage, a cat", "plage"],
    ["", "the cat the cat"],
    ["naïve l'été 12 12", "x 12 sees a"],
    ["été a the sees old dog", "old"],
]
PROTEINS = [["MKVLAAGIV" * 9], ["MKVLSAGIV" * 9], ["GGGMK  \n VL" + "A" * 70]]
CPU = torch.device("cpu")


def make_words(texts: list[list[str]]) -> tuple[Words, object]:
    bag = fit_vectorizer(texts)
    words = Words({str(term): int(n) for term, n in bag.vocabulary_.items()}, bag.idf_, False)
    return Words(words.terms, words.idf, bag.analyzer == "char"), bag


@pytest.mark.parametrize("texts", [TEXTS, [[one] for one, _ in TEXTS], PROTEINS])
def test_words_are_counted_as_by_scikit_learn(texts: list[list[str]]):
    words, bag = make_words(texts)
    assert words.by_characters == (texts is PROTEINS)
    expected = count_words(bag, texts).toarray()
    found = np.zeros_like(expected)
    for row, each in zip(found, texts, strict=True):
        places, values = words.describe(each)
        np.add.at(row, places, values)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.any()


def make_beside(texts: list[list[str]], has_vectors: bool = True) -> Beside:
    words, bag = make_words(texts)
    draw = np.random.default_rng(0)
    num_words = count_words(bag, texts).shape[1]
    embedder = open_embedder(make_loaded())
    size = compute_vectors(embedder, texts).shape[1] if has_vectors else 0
    weights = Weights(
        np.array(0.5), draw.normal(size=(3, num_words)), draw.normal(size=(3, size)), np.ones(3)
    )
    return Beside(words, weights, embedder if has_vectors else None)


@pytest.mark.parametrize("has_vectors", [True, False])
@pytest.mark.parametrize("texts", [TEXTS, [["the cat sees"], ["the dog"], ["the cat"]]])
def test_it_is_saved_as_plain_data(texts: list[list[str]], has_vectors: bool, tmp_path: Path):
    source, model = tmp_path / "source", tmp_path / "model"
    save_model(source, make_loaded().model, TOKENIZER)
    model.mkdir()
    assert describe_beside(model) == []
    assert Beside.read(model, CPU) is None
    beside = make_beside(texts, has_vectors)
    logits = np.random.default_rng(1).normal(size=(len(texts), 3)).astype(np.float32)
    beside.save(model, source)
    files = {path.suffix for path in model.rglob("*") if path.is_file()}
    assert files == {".json", ".safetensors"}
    assert (model / FOLDER_NAME / "encoder").is_dir() == has_vectors
    again = Beside.read(model, CPU)
    assert again is not None
    expected = beside(logits, texts)
    np.testing.assert_allclose(again(logits, texts), expected, atol=1e-5)
    assert not np.allclose(expected, 0.5 * logits + 1)
    assert "not included" in describe_beside(model)[0]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("words.json", "[]"),
        ("words.json", '{"terms": ["a"]}'),
        ("weights.safetensors", ""),
        ("weights.safetensors", None),
        ("encoder/config.json", "{}"),
    ],
)
def test_damage_is_named(file: str, content: str | None, tmp_path: Path):
    source, model = tmp_path / "source", tmp_path / "model"
    save_model(source, make_loaded().model, TOKENIZER)
    model.mkdir()
    make_beside(TEXTS).save(model, source)
    path = model / FOLDER_NAME / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(ModelFolderError, match=FOLDER_NAME):
        Beside.read(model, CPU)


def test_it_answers_without_scikit_learn(tmp_path: Path):
    """A server needs neither scikit-learn nor SciPy."""
    source, model = tmp_path / "source", tmp_path / "model"
    save_model(source, make_loaded().model, TOKENIZER)
    model.mkdir()
    make_beside(TEXTS).save(model, source)
    program = (
        "import sys, numpy, torch, pathlib; from maskwright.finetuning.beside import Beside;"
        "found = Beside.read(pathlib.Path(sys.argv[1]), torch.device('cpu'));"
        "found(numpy.zeros((1, 3), 'f4'), [['the cat', 'a']]);"
        "assert not {'sklearn', 'scipy'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program, str(model)], check=True)
