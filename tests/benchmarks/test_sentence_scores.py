"""A scorer for any model, and the notebook's model that it scores beside ours."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import notebook_peer
from benchmarks.notebook_peer import LENGTH, NotebookModel, Peer
from benchmarks.sentence_scores import our_logits, score_sentences
from maskwright.corpus.config import CorpusConfig
from maskwright.inference.text_model import TextModel
from maskwright.logs import read_metrics
from maskwright.model.init import initialize
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import prepare
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer
from tests.models import small_config

TEXTS = [f"The horse number {number} eats green grass every day." for number in range(40)]
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=96, min_frequency=1))
SENTENCES = [text.ids.tolist() for text in TOKENIZER.encode_batch(TEXTS)]


def test_who_knows_the_sentences_is_always_right() -> None:
    clean = SENTENCES[0]
    num_hidden: list[int] = []

    def know(rows: list[list[int]]) -> Tensor:
        [row] = rows
        labels = [clean[i] for i, token_id in enumerate(row) if token_id == TOKENIZER.mask_id]
        num_hidden.append(len(labels))
        return F.one_hot(torch.tensor(labels), TOKENIZER.vocab_size) * 50.0

    scores = score_sentences(know, [clean], TOKENIZER)
    assert (scores["masked_accuracy"], scores["single_mask_accuracy"]) == (1.0, 1.0)
    assert scores["masked_loss"] < 1e-6
    assert num_hidden == [round(0.15 * len(clean)), 1]


def test_ours_and_the_notebook_s_are_scored_alike() -> None:
    torch.manual_seed(0)
    config = replace(small_config(max_seq_length=64), vocab_size=TOKENIZER.vocab_size)
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    text_model = TextModel.from_parts(model, TOKENIZER, add_special_tokens=True)
    scores = score_sentences(our_logits(text_model), SENTENCES, TOKENIZER)
    again = score_sentences(our_logits(text_model), SENTENCES, TOKENIZER)
    assert scores == again
    assert scores["sentences"] == len(SENTENCES)
    assert 0 <= scores["single_mask_accuracy"] < 0.5


def test_the_notebook_s_model_has_its_size_and_ignores_padding() -> None:
    whole = NotebookModel(8192, pad_id=0)
    assert sum(parameter.numel() for parameter in whole.parameters()) == 6_861_056
    model = NotebookModel(64, pad_id=0, size=32, num_layers=2).eval()
    ids = torch.randint(1, 64, (2, 9))
    padded = torch.cat([ids, torch.zeros(2, LENGTH - 9, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model(padded)[:, :9], model(ids))


def test_a_peer_that_was_killed_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, texts in (("train", TEXTS), ("valid", ["A horse number 7 eats grass."])):
        (tmp_path / f"{split}.txt").write_text("\n".join(texts), encoding="utf-8")
    corpus = CorpusConfig(documents="line", valid_text=(str(tmp_path / "valid.txt"),))
    config = PrepareConfig(
        corpus=corpus, tokenizer=TokenizerConfig(vocab_size=96, min_frequency=1), workers=1
    )
    prepare([str(tmp_path / "train.txt")], tmp_path / "data", config)
    small = partial(NotebookModel, size=16, num_layers=1)
    monkeypatch.setattr(notebook_peer, "NotebookModel", small)
    monkeypatch.setattr(notebook_peer, "ROWS", 16)
    data, run = PreparedData(tmp_path / "data"), tmp_path / "run"
    run.mkdir()
    peer = Peer(data, run, minutes=1)
    for _ in range(2):
        peer.train_step()
    peer.save()
    resumed = Peer(data, run, minutes=1)
    for _ in range(2):  # into the second epoch
        peer.train_step()
        resumed.train_step()
    assert (resumed.step, resumed.tokens) == (peer.step, peer.tokens)
    for ours, theirs in zip(peer.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    scores = resumed.validate()
    assert scores["num_predictions"] > 0
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 4
