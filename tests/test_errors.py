from maskwright import errors
from maskwright.errors import ConfigError, MaskwrightError, UnknownKeyError


def test_a_config_error_names_field_value_rule_and_remedy() -> None:
    error = ConfigError("rate", 1.5, "must lie between 0 and 1", "Try 0.15.")
    assert str(error) == "rate = 1.5 must lie between 0 and 1. Try 0.15."
    assert str(error.within("masking")).startswith("masking.rate = 1.5 must")


def test_a_config_error_without_remedy_ends_with_its_rule() -> None:
    assert str(ConfigError("a", 0, "must be above 0")) == "a = 0 must be above 0."


def test_an_unknown_key_names_the_nearest() -> None:
    assert str(UnknownKeyError("train.grad_clp", "train.grad_clip")) == (
        "unknown key train.grad_clp; did you mean train.grad_clip?"
    )
    assert str(UnknownKeyError("x", None)) == "unknown key x."


def test_every_error_is_in_the_tree_of_the_docstring() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    assert all(issubclass(value, MaskwrightError) for value in classes)
    named = (errors.__doc__ or "").split()
    assert all(v.__name__ in named for v in classes if v is not UnknownKeyError)
