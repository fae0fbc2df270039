"""``pipeline("fill-mask")`` of transformers and `FillMask` on the same folder say the same."""

from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from transformers import pipeline

from maskwright.inference.fill_mask import FillMask
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import save_model
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer
from tests.twins import randomize

TEXTS = [
    "the cat sat on the [MASK]",
    "a [MASK] flew over the [MASK] near word9",
    "The DOG ran under [MASK] tree, unknown!",
    "[MASK]",
]


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert", "roberta"])
def test_predictions_are_those_of_transformers(preset: str, wrap: bool, tmp_path: Path) -> None:
    model, tokenizer = tiny_model(preset=preset), tiny_tokenizer(tmp_path / "tokenizer")
    save_model(tmp_path / "model", model, tokenizer, add_special_tokens=wrap)
    folder = str(tmp_path / "model")
    theirs = pipeline("fill-mask", model=folder, tokenizer=folder, device="cpu")
    ours = FillMask(folder, device="cpu")
    for result in ours(TEXTS, top_k=7):
        found: Any = theirs(result.text, top_k=tokenizer.vocab_size)
        found = [found] if len(result.masks) == 1 else found
        compare(result.masks, [offer(one, tokenizer)[:7] for one in found])
    targets = ["dog", "cat", "tree"]
    compare(ours(TEXTS[0], targets=targets)[0].masks, [theirs(TEXTS[0], targets=targets)])


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "character"])
def test_every_kind_of_tokenizer_agrees(kind: TokenizerKind, tmp_path: Path) -> None:
    texts = list(topics.values())[:20]
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=512))
    sizes = ModelConfig(hidden_size=32, num_hidden_layers=2, intermediate_size=48)
    config = resolve_config(sizes, vocab_size=tokenizer.vocab_size, max_seq_length=128)
    model = MaskedLanguageModel(config)
    randomize(model, seed=0)
    save_model(tmp_path, model, tokenizer)
    theirs = pipeline("fill-mask", model=str(tmp_path), tokenizer=str(tmp_path), device="cpu")
    ours = FillMask(tmp_path, device="cpu")
    # Where a mask touches a word, transformers reads another text than training had.
    for text in ("The [MASK] statement, a [MASK] .", "[MASK] of objects[MASK]"):
        found: Any = theirs(text, top_k=tokenizer.vocab_size)
        found = [found] if isinstance(found[0], dict) else found
        compare(ours(text)[0].masks, [offer(one, tokenizer)[:5] for one in found])


def offer(predictions: list[dict[str, Any]], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Those that a text can have: no special tokens, fillers or bytes outside of UTF-8."""
    ordinary = set(tokenizer.ordinary_ids.tolist())
    return [one for one in predictions if one["token"] in ordinary]


def compare(ours: list, theirs: list) -> None:
    """Our predictions and theirs, mask by mask: words, ids and scores."""
    for predictions, expected in zip(ours, theirs, strict=True):
        assert [p.token_id for p in predictions] == [e["token"] for e in expected]
        assert [p.token for p in predictions] == [e["token_str"] for e in expected]
        scores = [e["score"] for e in expected]
        assert [p.score for p in predictions] == pytest.approx(scores, abs=1e-5)
