from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.corpus.config import CorpusConfig
from maskwright.data.batch import Batch, SpecialIds
from maskwright.data.config import DataConfig
from maskwright.data.masking import IGNORED, Vocabulary
from maskwright.errors import ShardError
from maskwright.evaluation.data import PinnedText
from maskwright.interop.comparison import batch_rows
from maskwright.interop.masked_lm_source import (
    MaskJudge,
    choose_sentences,
    read_masked_rows,
    split_rows,
)
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import LoadedModel
from maskwright.objectives.mlm import predict_masked
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import prepare_folder
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.template import wrap_inputs
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.interop.models import encode
from tests.workplace import write_corpus

LENGTH = 32


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("held-out")
    corpus = CorpusConfig(valid_fraction=0.2, deduplicate=False)
    tokenizer = TokenizerConfig(vocab_size=96, min_frequency=1)
    text = write_corpus(root / "animals.txt")
    prepare_folder([str(text)], root / "data", PrepareConfig(corpus=corpus, tokenizer=tokenizer))
    return root / "data"


@pytest.fixture(scope="module")
def loaded(data: Path) -> LoadedModel:
    """A model with random weights over the data's vocabulary."""
    tokenizer = wrap_inputs(Tokenizer.load(data / "tokenizer"), True)
    config = resolve_config(
        ModelConfig("bert", hidden_size=16, num_hidden_layers=1, num_attention_heads=2),
        vocab_size=tokenizer.vocab_size,
        max_seq_length=LENGTH,
        pad_token_id=tokenizer.pad_id,
    )
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    return LoadedModel(model.eval(), tokenizer, True)


def pinned_batches(loaded: LoadedModel, data: Path, num_positions: int) -> list[Batch]:
    tokenizer, valid = loaded.tokenizer, TokenStore.open(data, "valid")
    vocabulary = Vocabulary(
        tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, valid.unigram_counts
    )
    special = SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, True)
    batches = PinnedText(valid, DataConfig(LENGTH), special, vocabulary, num_positions).batches()
    return list(batches)


def test_the_masks_are_those_of_every_validation(loaded: LoadedModel, data: Path):
    """So a quantized model is judged by what the run's own validation asks."""
    batches = pinned_batches(loaded, data, 2048)
    rows = read_masked_rows(loaded, data, 2048)
    expected = [
        (label, word)
        for batch in batches
        for used in [batch.masked_labels != IGNORED]
        for logits in [predict_masked(loaded.model, batch)[used]]
        for label, word in zip(
            batch.masked_labels[used].tolist(), logits.argmax(-1).tolist(), strict=True
        )
    ]

    @torch.no_grad()
    def compute(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return loaded.model.head(encode(loaded, (input_ids, attention_mask)))

    judge = MaskJudge(rows, loaded.tokenizer.vocab_size, loaded.tokenizer.pad_id)
    labels = [label for row in rows for label in row.labels]
    found = zip(labels, judge.answer(compute).tolist(), strict=True)
    assert len(expected) > 100
    assert sorted(expected) == sorted(found)


def test_segments_are_taken_apart_with_their_masks(loaded: LoadedModel, data: Path):
    for batch in pinned_batches(loaded, data, 1024):
        rows = list(split_rows(batch))
        assert sum(len(row.positions) for row in rows) == batch.num_predictions
        for row in rows:
            assert row.ids[0] == loaded.tokenizer.cls_id
            assert row.ids[-1] == loaded.tokenizer.sep_id
            assert row.ids.count(loaded.tokenizer.cls_id) == 1
            assert loaded.tokenizer.pad_id not in row.ids
            assert all(0 < position < len(row.ids) - 1 for position in row.positions)


def test_data_of_another_tokenizer_is_refused(loaded: LoadedModel, data: Path):
    description = {**loaded.tokenizer.description, "normalizer": None}
    other = Tokenizer(description, loaded.tokenizer.special_tokens)
    with pytest.raises(ShardError, match="prepared with another tokenizer than the model's"):
        read_masked_rows(LoadedModel(loaded.model, other, True), data)


def test_sentences_come_from_held_out_text(loaded: LoadedModel, data: Path):
    sentences = choose_sentences(loaded, data, mask_words=True)
    animals = [text for text in sentences.texts if " in the " in text]
    assert len(animals) > 10
    for text, row in zip(sentences.texts, sentences.rows, strict=True):
        assert row.count(loaded.tokenizer.mask_id) == text.count("[MASK]") == 1
        assert len(row) <= LENGTH
    lengths = np.unique([len(row) for row in sentences.rows])
    assert len(lengths) > 10
    assert lengths[-1] >= LENGTH - 4


def test_sentences_without_data_come_from_the_environment(loaded: LoadedModel):
    sentences = choose_sentences(loaded, None, mask_words=False)
    assert len(sentences.texts) > 20
    assert not any("[MASK]" in text for text in sentences.texts)


def test_batches_hold_every_row_and_bound_the_logits():
    rows = [[7] * n for n in (3, 40, 1, 9, 9, 2, 30, 4, 4, 11)]
    for vocab_size in (100, 1 << 20, 1 << 25):
        batches = [batch for _, batch in batch_rows(rows, vocab_size, pad_id=0)]
        lengths = [n for _, mask in batches for n in mask.sum(1).tolist()]
        assert lengths == [len(row) for row in rows]
        for input_ids, attention_mask in batches:
            assert len(input_ids) == 1 or input_ids.numel() * vocab_size <= 1 << 25
            assert torch.equal((input_ids != 0).long(), attention_mask)
        sorted_batches = list(batch_rows(rows, vocab_size, 0, by_length=True))
        numbers = [n for group, _ in sorted_batches for n in group]
        assert sorted(numbers) == list(range(len(rows)))
        assert [len(rows[n]) for n in numbers] == sorted(map(len, rows))
