"""Data that does not fit is found when the parts are put together."""

import json
import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.errors import ConfigError, ShardError
from maskwright.pretraining.build import build_trainer
from maskwright.pretraining.find_data import adopt_preparation, read_preparations
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.settled import Settled
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.workplace import SMALL, data_of


@pytest.fixture
def data(workplace: Path, tmp_path: Path) -> Path:
    """A copy of the prepared data."""
    return Path(shutil.copytree(data_of(workplace), tmp_path / "data"))


def small_config(data: Path) -> PretrainConfig:
    sections = {
        "data": {"max_seq_length": 32},
        "model": {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
        "train": {"max_steps": 1, "compile": "off"},
    }
    return resolve("tiny", None, {"text": [str(data)], **sections})


def test_a_tokenizer_put_in_later_is_found(data: Path):
    before = Tokenizer.load(data / "tokenizer").fingerprint
    file = data / "tokenizer" / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = values["model"]["vocab"]
    first, second = [token for token in vocabulary if token.isalpha()][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ShardError) as caught:
        PreparedData(data)
    assert before in str(caught.value)
    assert Tokenizer.load(data / "tokenizer").fingerprint in str(caught.value)


def test_validation_text_too_short_to_be_scored(data: Path):
    prepared = PreparedData(data)
    prepared.valid.document_lengths = prepared.valid.document_lengths[:1] * 0 + 2
    with pytest.raises(ShardError, match=r"too little validation text.*corpus\.valid_fraction"):
        build_trainer(small_config(data), prepared, data / "checkpoints")


def test_prepared_data_says_how_it_was_prepared(data: Path):
    asked = Settled(small_config(data))
    config = adopt_preparation(asked, read_preparations(asked.config)).config
    assert config.tokenizer.vocab_size == 96
    assert config.corpus.valid_fraction == 0.1


def test_asking_for_the_preparation_that_was_is_no_error(data: Path):
    def ask(size: int) -> None:
        given = {"tokenizer": {"vocab_size": size}}
        asked = Settled.read("tiny", None, {"text": [str(data)], **given})
        adopt_preparation(asked, read_preparations(asked.config))

    ask(96)
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size = 128 has no effect"):
        ask(128)


def test_the_card_names_the_text_behind_prepared_data(data: Path, tmp_path: Path):
    flags = [*SMALL, "--train.max_steps", "1", "--runs-dir", str(tmp_path), "--name", "run"]
    assert main(["pretrain", str(data), *flags]) == 0
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "animals.txt`: " in card
    assert "vocab_size: 96" in card


def test_words_are_those_between_blanks(workplace: Path):
    data = PreparedData(data_of(workplace))
    held_out = data.valid.manifest.splits["valid"].num_words
    assert held_out > 0
    words = (workplace / "animals.txt").read_text(encoding="utf-8").split()
    assert data.epoch_words + held_out == len(words)
