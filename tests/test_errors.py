import pickle

import pytest

from maskwright import errors
from maskwright.errors import (
    ConfigError,
    MaskwrightError,
    ShardError,
    UnknownKeyError,
    did_you_mean,
    find_nearest,
    show_value,
)


def test_a_config_error_names_field_value_rule_and_remedy() -> None:
    error = ConfigError("rate", 1.5, "must be between 0 and 1", "Try 0.15.")
    assert str(error) == "rate = 1.5 must be between 0 and 1. Try 0.15."
    assert str(error.within("masking")).startswith("masking.rate = 1.5 must")


def test_a_config_error_without_remedy_ends_with_its_rule() -> None:
    assert str(ConfigError("a", 0, "must be above 0")) == "a = 0 must be above 0."


def test_an_unknown_key_names_the_nearest() -> None:
    assert str(UnknownKeyError("train.grad_clp", "train.grad_clip")) == (
        "unknown key train.grad_clp; did you mean train.grad_clip?"
    )
    assert str(UnknownKeyError("x", None)) == "unknown key x."


_FLAGS = (
    "--optim.learning_rate",
    "--optim.muon_learning_rate",
    "--train.max_epochs",
    "--train.max_minutes",
    "--name",
    "--tokenizer.vocab_size",
)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("--lr", "--optim.learning_rate"),
        ("--epochs", "--train.max_epochs"),
        ("--num-train-epochs", "--train.max_epochs"),
        ("--output_dir", "--name"),
        ("--vocab-size", "--tokenizer.vocab_size"),
        ("--optim.vocab_size", "--tokenizer.vocab_size"),
        ("--train.max-minutes", "--train.max_minutes"),
        ("--train.max_minuts", "--train.max_minutes"),
        ("--learning_rate", "--optim.learning_rate"),
        ("--zebra", None),
    ],
)
def test_the_name_that_is_probably_meant(given: str, nearest: str | None) -> None:
    assert find_nearest(given, _FLAGS) == nearest
    assert did_you_mean(given, _FLAGS) == (f"Did you mean {nearest}?" if nearest else "")


@pytest.mark.parametrize(
    ("given", "valid", "nearest"),
    [
        ("MyRun2", ["MyRun", "other"], "MyRun"),
        ("bert-0.1x", ["bert-0.1"], "bert-0.1"),
        ("wiki-v1.0", ["shakespeare-v2.0"], None),
        ("", ["a", ""], None),
        ("---", [], None),
    ],
)
def test_names_of_runs_are_no_settings(given: str, valid: list[str], nearest: str | None) -> None:
    assert find_nearest(given, valid) == nearest


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("rate", 1.5, "must be between 0 and 1", "Try 0.15."),
        UnknownKeyError("train.grad_clp", "train.grad_clip"),
        ShardError("a.tokens is damaged."),
    ],
)
def test_errors_come_from_other_processes_as_they_were(error: MaskwrightError) -> None:
    error.add_note("where it was")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    own = (value for value in vars(errors).values() if isinstance(value, type))
    classes = [value for value in own if value.__module__ == errors.__name__]
    assert all(issubclass(value, MaskwrightError) for value in classes)
    named = (errors.__doc__ or "").split()
    assert all(v.__name__ in named for v in classes if v is not UnknownKeyError)


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    error = MaskwrightError("a\nb\x1b[31m\udcff " + "x" * 5_000 + " remedy")
    assert str(error).startswith("a b\\x1b[31m\\udcff ")
    assert str(error).endswith(" remedy")
    assert " … " in str(error)
    assert len(str(error)) < 1_100
    assert str(MaskwrightError("größe 東京")) == "größe 東京"


def test_values_are_quoted_briefly() -> None:
    deep: list[object] = []
    for _ in range(2_000):
        deep = [deep]
    assert show_value(deep) == "[[[[[[[...]]]]]]]"
    assert show_value(1 << 20_000) == "(an integer of 20001 bits)"
    assert show_value([10**400]) == "[(an integer of 1329 bits)]"
    assert len(show_value(list(range(10**5)))) < 200
    for value in (True, None, 1.5, 10**30, "a b", ("a", 1), [0.5, "x"], {"a": None}):
        assert show_value(value) == str(value)
