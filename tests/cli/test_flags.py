"""Flags: the usual ones in --help, all in --help-all, and choices as they are accepted."""

import re
import sys

import pytest

from maskwright.cli import prepare, pretrain
from maskwright.cli.flags import Parser, add_config_flags, config_values, say_loading
from maskwright.config import fields_of, from_mapping
from maskwright.corpus.config import CorpusConfig
from maskwright.preparation.config import PrepareConfig
from maskwright.runs.config import PretrainConfig, resolve
from tests.command import Cli


def read_help(cli: Cli, command: str, flag: str = "--help") -> str:
    return cli(*command.split(), flag)


def list_flags(text: str) -> list[str]:
    return re.findall(r"^  (--[\w.-]+)", text, flags=re.MULTILINE)


def test_help_of_pretrain_shows_the_usual_flags(cli: Cli):
    shown = read_help(cli, "pretrain")
    flags = list_flags(shown)
    assert {"--recipe", "--resume", "--train.max_minutes", "--help-all"} <= set(flags)
    assert "--masking.max_span_length" not in shown
    assert len(flags) <= 25
    assert len(shown.splitlines()) < 90
    assert shown.startswith("usage: maskwright pretrain [text ...] [options]\n")


def test_help_all_shows_every_flag(cli: Cli):
    flags = list_flags(read_help(cli, "pretrain", "--help-all"))
    fields = [f"--{info.name}" for info in fields_of(PretrainConfig)]
    assert set(fields) - set(flags) == {"--text", "--init_from"}  # these have a flag of their own


def test_usual_flags_exist():
    assert set(pretrain._USUAL) <= {info.name for info in fields_of(PretrainConfig)}
    assert set(prepare._PREPARE_USUAL) <= {info.name for info in fields_of(PrepareConfig)}


def test_defaults_are_those_of_the_default_recipe(cli: Cli):
    text = " ".join(read_help(cli, "pretrain", "--help-all").split())
    default = resolve()
    assert f"[{default.train.max_minutes}]" in text
    assert f"[{','.join(default.train.seq_length_schedule)}]" in text


def test_a_hidden_flag_works():
    parser = Parser("pretrain", "")
    add_config_flags(parser, resolve(), usual=("seed",))
    assert config_values(parser.parse(["--masking.rate", "0.2"])) == {"masking": {"rate": "0.2"}}


def test_rules_of_replace_are_arguments_that_may_have_commas():
    parser = Parser("pretrain", "")
    add_config_flags(parser, resolve())
    rules = (r"\d{1,3}=<num>", r"[a-f,]+=<id>")
    given = config_values(parser.parse(["--corpus.replace", *rules, "--seed", "1"]))
    assert from_mapping(CorpusConfig, given["corpus"]).replace == rules


@pytest.mark.parametrize("command", ["pretrain", "prepare", "tokenizer train", "inspect"])
def test_choices_are_spelled_as_they_are_accepted(cli: Cli, command: str):
    flag = "--help" if command == "tokenizer train" else "--help-all"
    values = re.findall(r"^  --[\w.]+\.\w+ (\S+)", read_help(cli, command, flag), re.MULTILINE)
    assert values
    for value in values:
        kinds = {"INT", "FLOAT", "BOOL", "STR"}
        parts = set(value.removesuffix(",...").split("|"))
        assert parts - kinds == {part.lower() for part in parts - kinds}, value


@pytest.mark.parametrize(
    ("rank", "said"), [(None, "loading torch\n"), ("0", "loading torch\n"), ("1", "")]
)
def test_the_first_rank_says_that_torch_is_loaded(
    rank: str | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    monkeypatch.setitem(sys.modules, "torch", sys)
    say_loading()
    assert capsys.readouterr().out == ""
    monkeypatch.delitem(sys.modules, "torch")
    say_loading()
    assert capsys.readouterr().out == said
