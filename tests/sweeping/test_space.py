"""`--over` names settings and their values."""

import pytest

from maskwright.errors import ConfigError, MaskwrightError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.runs.config import PretrainConfig
from maskwright.sweeping.run import DEFAULT_SPACE
from maskwright.sweeping.space import Dimension, parse_space


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        (
            "optim.learning_rate=1e-4..3e-3:log",
            Dimension("optim.learning_rate", 1e-4, 3e-3, is_log=True),
        ),
        ("masking.rate=0.15..0.5", Dimension("masking.rate", 0.15, 0.5)),
        (
            "train.batch_tokens=1024..8192:log",
            Dimension("train.batch_tokens", 1024, 8192, True, True),
        ),
        ("masking.rate=0.15,0.3", Dimension("masking.rate", choices=("0.15", "0.3"))),
        (
            "masking.strategy=words,tokens",
            Dimension("masking.strategy", choices=("words", "tokens")),
        ),
    ],
)
def test_ranges_and_choices(text: str, dimension: Dimension) -> None:
    assert parse_space([text], PretrainConfig) == [dimension]


def test_the_default_space_of_finetuning_is_one() -> None:
    assert len(parse_space(DEFAULT_SPACE, FinetuneConfig)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "masking.rate=0.5..0.1",
        "masking.rate=0.3",
        "masking.rate=0.1,often",
        "masking.rate=low..high",
        "optim.learning_rate=0..1:log",
        "masking.strategy=tokens..words",
        "masking.rate",
        "masking.rate=0.1..inf",
    ],
)
def test_what_is_no_space_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_space([text], PretrainConfig)
    assert caught.value.field == text.partition("=")[0]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("tokenizer.vocab_size=1024,2048", PretrainConfig),
        ("corpus.deduplicate=true,false", PretrainConfig),
        ("select.limits.min_words=1..9", PretrainConfig),
        ("data.max_seq_length=64,128", PretrainConfig),
        ("train.valid_seq_length=64,128", PretrainConfig),
        ("train.final_valid_tokens=1024..4096", PretrainConfig),
        ("objective.generator_share=0.25..1", PretrainConfig),
        ("metric=pearson,mean_squared_error", FinetuneConfig),
    ],
)
def test_what_changes_the_score_cannot_be_varied(text: str, config: type) -> None:
    with pytest.raises(ConfigError, match="maskwright compare") as caught:
        parse_space([text], config)
    assert caught.value.field == text.partition("=")[0]


def test_a_setting_must_exist_and_be_named_once() -> None:
    with pytest.raises(MaskwrightError, match=r"masking\.rate"):
        parse_space(["masking.rat=0.1..0.2"], PretrainConfig)
    with pytest.raises(MaskwrightError, match="twice"):
        parse_space(["masking.rate=0.1..0.2"] * 2, PretrainConfig)
