"""A value that is given stays, also one that equals the recipe's, or one error names both."""

from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from maskwright import pretrain
from maskwright.config import Plain, fields_of, merge, nested, to_mapping
from maskwright.errors import ConfigError
from maskwright.model.config import SIZE_FIELDS
from maskwright.pretraining.budget import choose_size, choose_vocabulary
from maskwright.pretraining.cards import parse_cards
from maskwright.pretraining.sizes import Size, adopt_size, keep_size, set_vocab_size
from maskwright.recipes import list_recipes
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.settled import Settled
from tests.command import Cli
from tests.workplace import write_corpus

FIELDS = [field.name for field in fields_of(PretrainConfig)]
RECIPES = [one.name for one in list_recipes() if one.name != "continue"]
SIZED = {f"model.{name}" for name in (*SIZE_FIELDS, "sizes")}  # a size replaces the choice of one
H200 = parse_cards("H200", "device")


def adopt(width: int) -> Callable[[Settled], Settled]:
    return lambda settled: adopt_size(settled, Size(0.0, width, 2))


def begin_wide(settled: Settled) -> Settled:
    """Begin with another size, and come back to the run."""
    return keep_size(settled, adopt(512)(Settled.read("auto")).config)


RULES: dict[str, Callable[[Settled], Settled]] = {
    "narrow": adopt(128),
    "wide": adopt(384),
    "wider": adopt(1024),
    "vocabulary": lambda settled: set_vocab_size(settled, 16384),
    "known GPU": lambda settled: choose_size(
        choose_vocabulary(settled, cards=H200), None, 1e9, cards=H200
    )[0],
    "begun": begin_wide,
}


def value_of(config: PretrainConfig, name: str) -> Any:
    return attrgetter(name)(config)


def give(recipe: str, name: str, value: Any, way: str, folder: Path) -> Settled:
    """Settle a recipe with one value, by a flag or by a file."""
    sizes = {} if recipe == "auto" else {"model": {"sizes": ["0:64x1", "0.001:512x12"]}}
    values = merge({"text": [__file__], **sizes}, nested(name, value))
    if way == "flag":
        return Settled.read(recipe, None, values)
    path = folder / "my.yaml"
    path.write_text(yaml.safe_dump({"recipe": recipe, **values}), encoding="utf-8")
    return Settled.read(None, path)


def list_values(recipe: str, name: str) -> Iterator[Any]:
    """Yield the values that a rule could take for values that were not given."""
    known = (value_of(_resolved(each), name) for each in {recipe, "auto", "wide"})
    yield from {repr(value): to_plain(value) for value in known}.values()


_resolved = cache(resolve)


def to_plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("recipe", "way"), [("auto", "flag"), ("auto", "file"), ("babylm-10m", "flag")]
)
def test_adopt_size_and_its_kin_keep_every_given_value(
    recipe: str, way: str, tmp_path: Path
) -> None:
    kept = 0
    for name in set(FIELDS) - SIZED - {"text", "init_from", "teacher"}:
        for value in list_values(recipe, name):
            try:
                settled = give(recipe, name, value, way, tmp_path)
            except ConfigError:
                continue  # it contradicts the recipe, and the error says so
            # Most fields are of no interest to a rule that goes through all sizes.
            suits = name.startswith(("data.", "masking.", "optim.", "train.", "tokenizer."))
            for rule in RULES if suits else ("wide", "begun"):
                found = to_plain(value_of(RULES[rule](settled).config, name))
                assert found == value, f"{name} = {value} by {way} over {recipe}, {rule}"
                kept += 1
    assert kept > 4 * 150


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "auto"])
def test_adopt_size_changes_only_the_size_of_a_recipe_that_was_chosen(recipe: str) -> None:
    settled = give(recipe, "seed", 1, "flag", Path())
    for apply in RULES.values():
        found = to_mapping(apply(settled).config)
        expected = to_mapping(settled.config)
        for name in SIZE_FIELDS:
            del found["model"][name], expected["model"][name]
        assert found == expected


def test_adopt_size_brings_what_nobody_gave() -> None:
    config = adopt(384)(Settled.read("auto")).config
    wide = resolve("wide")
    assert (config.optim, config.masking, config.train) == (wide.optim, wide.masking, wide.train)


@pytest.mark.parametrize("name", SIZE_FIELDS)
def test_put_over_refuses_a_size_beside_its_choice(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("auto", None, {"model": {"sizes": ["0:384x1"], name: 384}})
    assert caught.value.field == f"model.{name}"
    assert "model.sizes" in str(caught.value)


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
