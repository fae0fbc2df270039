"""The public names, pinned: changing them is a decision, not an accident."""

import argparse
import importlib
import inspect
import re
import subprocess
import sys
import typing

import pytest

import maskwright
from maskwright.cli.flags import Parser
from maskwright.cli.main import COMMANDS
from maskwright.extras import load

PUBLIC = {
    "Embedder",
    "FillMask",
    "MaskwrightError",
    "Predictor",
    "PretrainConfig",
    "PseudoLikelihoodScorer",
    "TokenStore",
    "Tokenizer",
    "compare",
    "embed",
    "evaluate",
    "evaluate_minimal_pairs",
    "evaluate_pseudo_likelihood",
    "experiment",
    "export",
    "finetune",
    "load_model",
    "plan",
    "predict",
    "prepare",
    "pretrain",
    "publish",
    "read_minimal_pairs",
    "save_model",
    "score_pseudo_likelihood",
    "search",
    "serve",
    "sweep",
    "train_tokenizer",
    "watch",
}


def test_the_public_names_are_these():
    assert set(maskwright.__all__) == PUBLIC
    assert set(dir(maskwright)) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_exists_and_is_documented(name: str):
    thing = getattr(maskwright, name)
    assert thing.__name__ == name
    assert thing.__doc__


VERBS = (
    "compare", "embed", "evaluate", "export", "finetune", "plan", "predict", "prepare", "publish",
    "search", "serve",
)  # fmt: skip
ONLY_HERE = {"ids", "report", "sections", "settings", "texts"}


def load_parser(verb: str) -> Parser:
    """Return the parser of a command."""
    return load(f"maskwright.cli.{COMMANDS[verb][0]}:{verb}_parser")()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_the_words_of_its_flags(verb: str):
    actions = load_parser(verb)._actions
    flags = {action.dest for action in actions if action.default is not argparse.SUPPRESS}
    parameters = set(inspect.signature(getattr(maskwright, verb)).parameters)
    assert parameters - ONLY_HERE <= flags
    if not {"sections", "settings"} & parameters:  # which take any other flag
        source = {"text", "file", "columns", "header"}
        of_texts = source if "texts" in parameters else set[str]()
        assert flags - of_texts - {"json", "details"} <= parameters
    hints = typing.get_type_hints(getattr(maskwright, verb))
    assert set(hints) == {*parameters, "return"}


@pytest.mark.parametrize("verb", ["pretrain", "watch"])
def test_a_job_takes_the_words_of_its_command(verb: str):
    flags = {action.dest.removeprefix("config:") for action in load_parser(verb)._actions}
    assert (
        set(inspect.signature(getattr(maskwright, verb)).parameters) - ONLY_HERE - {"out"} <= flags
    )


@pytest.mark.parametrize("verb", [*VERBS, "pretrain", "watch"])
def test_a_verb_is_documented_with_an_example(verb: str):
    text = inspect.getdoc(getattr(maskwright, verb)) or ""
    assert re.search(rf"^    .*\b{verb}\(", text, flags=re.MULTILINE)
    for name in inspect.signature(getattr(maskwright, verb)).parameters:
        assert re.search(rf"^    {name}: ", text, flags=re.MULTILINE), name


def test_a_room_does_not_hide_a_function():
    importlib.import_module("maskwright.finetuning.config")
    assert inspect.isfunction(maskwright.finetune)


def test_the_help_of_every_command_leaves_torch_out():
    code = """
import sys
from maskwright.cli.main import COMMANDS, main
for name in COMMANDS:
    try:
        main([name, "--help"])
    except SystemExit as ended:
        assert not ended.code, name
    assert "torch" not in sys.modules, name
    print("checked", name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\nchecked ") == len(COMMANDS)


@pytest.mark.parametrize("name", ["Trainer", "pretraine"])
def test_an_unknown_name_is_an_attribute_error(name: str):
    with pytest.raises(AttributeError, match=f"attribute {name}"):
        getattr(maskwright, name)


def test_importing_the_package_and_the_command_line_is_light():
    heavy = ("torch", "numpy", "tokenizers", "rich", "yaml")
    code = f"import sys, maskwright.cli.main; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
