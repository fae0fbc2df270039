"""The public names, pinned: changing them is a decision, not an accident."""

import subprocess
import sys

import pytest

import maskwright

PUBLIC = {
    "Embedder",
    "FillMask",
    "MaskwrightError",
    "Predictor",
    "PretrainConfig",
    "TokenStore",
    "Tokenizer",
    "evaluate_minimal_pairs",
    "evaluate_pseudo_likelihood",
    "export_model",
    "load_model",
    "prepare",
    "pretrain",
    "publish_model",
    "read_minimal_pairs",
    "save_model",
    "score_pseudo_likelihood",
    "train_tokenizer",
}


def test_the_public_names_are_these():
    assert set(maskwright.__all__) == PUBLIC
    assert set(dir(maskwright)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_exists_and_is_documented(name: str):
    thing = getattr(maskwright, name)
    assert thing.__name__ == name
    assert thing.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = maskwright.Trainer


def test_importing_the_package_and_the_command_line_is_light():
    heavy = ("torch", "numpy", "tokenizers", "rich", "yaml")
    code = f"import sys, maskwright.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
