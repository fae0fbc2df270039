"""A value that is given stays, also one that equals the recipe's, or one error names both."""

import json
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from maskwright import pretrain
from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import pretrain_parser
from maskwright.config import Plain, fields_of, merge, nested, to_mapping
from maskwright.errors import ConfigError
from maskwright.model.config import SIZE_FIELDS
from maskwright.pretraining import budget
from maskwright.pretraining.budget import choose_size, choose_vocabulary
from maskwright.pretraining.gpus import parse_cards
from maskwright.pretraining.request import read_facts
from maskwright.pretraining.settle import settle
from maskwright.pretraining.sizes import Size, adopt_size, keep_size, set_vocab_size
from maskwright.recipes import list_recipes
from maskwright.runs.config import PretrainConfig, is_set, resolve
from maskwright.runs.run_directory import load_run_config
from maskwright.runs.settled import Settled
from tests.command import Cli
from tests.workplace import data_of, write_corpus

FIELDS = {info.name: info for info in fields_of(PretrainConfig)}
RECIPES = [one.name for one in list_recipes() if one.name != "continue"]
SIZED = {f"model.{name}" for name in (*SIZE_FIELDS, "sizes")}  # a size replaces the choice of one
H200 = parse_cards("H200", "device")
WAYS = ("flag", "file", "python")
MODELS = {"text", "init_from", "teacher"}

_resolved = cache(resolve)
_parser = cache(pretrain_parser)


def adopt(width: int) -> Callable[[Settled], Settled]:
    return lambda settled: adopt_size(settled, Size(0.0, width, 2))


@cache
def begun() -> PretrainConfig:
    """A run of `auto` that is wide."""
    return adopt(512)(Settled.read("auto")).config


RULES: dict[str, Callable[[Settled], Settled]] = {
    "narrow": adopt(128),
    "wide": adopt(384),
    "wider": adopt(1024),
    "vocabulary": lambda settled: set_vocab_size(settled, 16384),
    "known GPU": lambda settled: choose_size(
        choose_vocabulary(settled, None, H200), None, 1e9, cards=H200
    ),
    "begun": lambda settled: keep_size(settled, begun()),
}


def value_of(config: PretrainConfig, name: str) -> Any:
    value = attrgetter(name)(config)
    return list(value) if isinstance(value, tuple) else value


def list_values(name: str, *configs: PretrainConfig) -> list[Any]:
    """Return the default of a field and its values in `configs`, each once."""
    default = FIELDS[name].default
    known = [list(default) if isinstance(default, tuple) else default]
    known += [value_of(config, name) for config in configs]
    return list({repr(value): value for value in known}.values())


def give(recipe: str, values: Plain, name: str, value: Any, way: str, folder: Path) -> Settled:
    """Settle a recipe with nested values and one more, which is given in one of several ways."""
    if way == "flag":  # words, as of a shell
        words = ",".join(value) if isinstance(value, list) else str(value)
        argument = f"--{name.replace('init_from', 'init-from')}={words or 'none'}"
        flags = config_values(_parser().parse([argument]))
        return Settled.read(recipe, None, merge(values, flags))
    values = merge(values, nested(name, value))
    if way == "python":
        return Settled.read(recipe, None, values)
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump({"recipe": recipe, **values}), encoding="utf-8")
    return Settled.read(None, path)


@pytest.mark.parametrize("way", WAYS)
def test_adopt_size_and_its_kin_keep_every_given_value(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "count_update_flops", lambda *_: 1e12)  # it builds the model
    configs = [_resolved("auto"), _resolved("wide"), begun()]
    kept, errors = set[str](), dict[str, ConfigError]()
    for name in FIELDS.keys() - SIZED - MODELS - {"private"}:
        for value in list_values(name, *configs):
            try:
                settled = give("auto", {"text": [__file__]}, name, value, way, tmp_path)
            except ConfigError as error:  # it contradicts the recipe
                errors[name] = error
                continue
            is_open = name.partition(".")[0] in ("data", "masking", "optim", "train", "tokenizer")
            for rule in RULES if is_open and way == "flag" else ("wide", "begun"):
                found = value_of(RULES[rule](settled).config, name)
                assert found == value, f"{name} = {value} by {way}, {rule}"
                kept.add(name)
    assert kept == FIELDS.keys() - SIZED - MODELS - {"private"}
    assert all(name in str(error) for name, error in errors.items())


@pytest.mark.parametrize("recipe", RECIPES)
def test_adopt_size_keeps_a_recipe_that_is_given_as_a_whole(recipe: str, tmp_path: Path) -> None:
    """All values of a recipe in a file, and ``--model.sizes`` over them."""
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump({"recipe": "auto", **to_mapping(_resolved(recipe))}), "utf-8")
    settled = Settled.read(None, path, {"model": {"sizes": ["0:64x1", "0.001:512x12"]}})
    check_sizes_alone_change(settled)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "auto"])
def test_adopt_size_changes_only_the_size_of_a_recipe_that_was_chosen(recipe: str) -> None:
    check_sizes_alone_change(Settled.read(recipe, None, {"model": {"sizes": ["0:64x1"]}}))


def check_sizes_alone_change(settled: Settled) -> None:
    for rule in ("narrow", "wide", "wider", "vocabulary", "begun"):
        found = to_mapping(RULES[rule](settled).config)
        expected = to_mapping(settled.config)
        for name in SIZE_FIELDS:
            del found["model"][name], expected["model"][name]
        assert found == expected


def adopt_fixed(settled: Settled) -> Settled:
    """Adopt what the data and the model of a run fix, as a run does."""
    return settle(settled, read_facts(settled.config))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", ["data", "init_from", "teacher"])
def test_settle_keeps_a_value_that_is_given_or_names_it(
    of: str, way: str, workplace: Path, tmp_path: Path
) -> None:
    """None leaves a value to the model."""
    data, run = str(data_of(workplace)), workplace / "runs" / "small"
    values = {"text": [data]} if of == "data" else {"text": [__file__], of: str(run)}
    recipe = "continue" if of == "init_from" else "auto"
    configs = [resolve(recipe, None, values), _resolved("bert"), load_run_config(run, {})]
    kept, errors = set[str](), dict[str, ConfigError]()
    for name in FIELDS.keys() - MODELS - {"private"}:
        if way != "flag" and name.partition(".")[0] not in ("data", "model", "tokenizer"):
            continue
        for value in list_values(name, *configs):
            try:
                settled = adopt_fixed(give(recipe, values, name, value, way, tmp_path))
            except ConfigError as error:
                errors[name] = error
                continue
            assert value_of(settled.config, name) == value or not is_set(value), name
            kept.add(name)
    assert len(kept) > 50
    assert len(errors) > 2
    assert all(name in str(error) for name, error in errors.items())


def test_adopt_size_brings_what_nobody_gave() -> None:
    config = adopt(384)(Settled.read("auto")).config
    wide = resolve("wide")
    assert (config.optim, config.masking, config.train) == (wide.optim, wide.masking, wide.train)


def test_adopt_model_refuses_two_sizes_of_a_vocabulary(workplace: Path) -> None:
    run = workplace / "runs" / "small"
    size = load_run_config(run, {}).tokenizer.vocab_size
    given = {"init_from": str(run), "tokenizer": {"vocab_size": size, "replace_vocab": 300}}
    with pytest.raises(ConfigError) as caught:
        adopt_fixed(Settled.read("continue", None, {"text": [__file__], **given}))
    assert caught.value.field == "tokenizer.vocab_size"
    assert "replace_vocab" in str(caught.value)


LENGTHS = {  # given: what a wide model then has
    (): (512, "0:128,0.8:512"),
    ("data.max_seq_length", 128): (128, "0:32,0.25:64,0.7:128"),
    ("data.max_seq_length", 512): (512, "0:128,0.8:512"),
    ("data.max_seq_length", 256): (256, ""),
    ("train.seq_length_schedule", "0:32,0.5:128"): (128, "0:32,0.5:128"),
    ("train.seq_length_schedule", "none"): (512, ""),
}


@pytest.mark.parametrize("given", LENGTHS)
def test_adopt_size_leaves_row_lengths_together(given: tuple[str, Any]) -> None:
    settled = Settled.read("auto", None, nested(*given) if given else {})
    config = adopt(384)(settled).config
    schedule = ",".join(config.train.seq_length_schedule)
    assert (config.data.max_seq_length, schedule) == LENGTHS[given]


GIVEN = {  # each equals the value of `auto`, and would be another one at this width
    "optim.learning_rate": 0.024,
    "data.max_seq_length": 128,
    "masking.rate": 0.4,
    "train.batch_tokens": 4096,
    "train.valid_tokens": 16384,
    "tokenizer.vocab_size": 500,
}
RUN = {"model.sizes": ["0:384x1"], "train.max_steps": 2, "train.compile": "off", "seed": 0}


def nest(values: Plain) -> Plain:
    found: Plain = {}
    for name, value in values.items():
        found = merge(found, nested(name, value))
    return found


def train_by(way: str, text: Path, out: Path, cli: Cli) -> None:
    """Train with `GIVEN` and `RUN`, given in one of several ways."""
    values, where = nest({**RUN, **GIVEN}), {"data_dir": out.parent / "data", "out": out}
    file = out.parent / "my.yaml"
    flags = [
        part
        for name, value in {**RUN, **GIVEN}.items()
        for part in (f"--{name}", ",".join(value) if isinstance(value, list) else str(value))
    ]
    command = ["pretrain", str(text), "--runs-dir", str(out.parent), "--name", out.name]
    command += ["--data-dir", str(out.parent / "data")]
    if way == "python":
        pretrain(text, **where, **values)
    elif way == "flags":
        cli(*command, *flags)
    elif way == "file":
        file.write_text(yaml.safe_dump({"recipe": "auto", **values}), encoding="utf-8")
        cli(*command, "--config", str(file))
    elif way == "printed":
        file.write_text(cli(*command, *flags, "--print-config"), encoding="utf-8")
        cli(*command, "--config", str(file))
    else:
        cli(*command, *flags, "--auto-resume")
        cli(*command, *flags, "--auto-resume")


@pytest.mark.parametrize("way", ["flags", "file", "python", "printed", "auto-resume"])
def test_pretrain_writes_what_was_given(way: str, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "run"
    train_by(way, write_corpus(tmp_path / "c.txt", 60), out, cli)
    written = yaml.safe_load((out / "config.yaml").read_text("utf-8"))
    for name, value in GIVEN.items():
        section, _, own = name.partition(".")
        assert written[section][own] == value, name
    assert written["train"]["seq_length_schedule"] == list(
        _resolved("auto").train.seq_length_schedule
    )
    origins = json.loads((out / "provenance.json").read_text("utf-8"))["origins"]
    assert GIVEN.keys() <= {*origins.get("flag", ()), *origins.get("file", ())}
    assert {"model.hidden_size", "optim.muon_learning_rate"} <= {*origins["budget"]}
    assert written["model"]["hidden_size"] == 384
    assert written["optim"]["muon_learning_rate"] == resolve("wide").optim.muon_learning_rate


def test_the_file_of_a_run_is_that_run(tmp_path: Path) -> None:
    config = adopt(512)(Settled.read("auto")).config
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_mapping(config)), encoding="utf-8")
    again = to_mapping(Settled.read(None, path).config)
    expected = to_mapping(config)
    assert expected["model"].pop("sizes")
    assert not again["model"].pop("sizes")
    assert again == expected
