"""What a sweep varies: ``optim.learning_rate=1e-4..3e-3:log``, ``masking.rate=0.15,0.3,0.4``."""

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from maskwright.config import FieldInfo, convert, fields_of
from maskwright.errors import ConfigError, InputError, suggest

Value = float | int | str
# Settings that change what a trial is scored on, or by which metric; a dot ends a whole section.
_INCOMPARABLE = (
    "corpus.", "data.max_seq_length", "data.packed", "data.special_tokens", "init_from", "metric",
    "objective.", "select.", "teacher", "text", "tokenizer.", "train.final_valid_tokens",
    "train.valid_seq_length",
)  # fmt: skip
_RANGE = re.compile(r"(?P<low>[^.:]+(?:\.\d+[^.:]*)?)\.\.(?P<high>[^:]+?)(?P<log>:log)?")


@dataclass(frozen=True)
class Dimension:
    """One setting and its values: a range, or a list of choices.

    Attributes:
        name: dotted, as the flag.
        low, high: the ends of a range, integers where the setting is one; both belong to it.
        is_log: equal ratios are equally likely, not equal differences.
        choices: values as flags spell them; empty for a range.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_integer: bool = False
    choices: tuple[str, ...] = ()

    def draw(self, trial: Any) -> Value:
        """Return the value that an optuna trial suggests."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.is_integer:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.is_log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.is_log)


def parse_space(specifications: Iterable[str], config: type) -> list[Dimension]:
    """Return the dimensions that `--over` names, each a field of `config`.

    Raises:
        ConfigError: a range or a choice that the field does not take; scores of trials that differ
            in the field are not comparable.
        InputError: a field that does not exist, or one that is named twice.
    """
    known = {info.name: info for info in fields_of(config)}
    dimensions = [_parse(specification, known) for specification in specifications]
    names = [dimension.name for dimension in dimensions]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"--over names {min(repeated)} twice. Remove one.")
    return dimensions


def list_combinations(space: Sequence[Dimension], seed: int) -> list[dict[str, str]]:
    """Return all combinations of choices in an order set by `seed`; none if one is a range."""
    combinations = list(product(*(dimension.choices for dimension in space)))
    random.Random(seed).shuffle(combinations)
    names = [dimension.name for dimension in space]
    return [dict(zip(names, values, strict=True)) for values in combinations]


def _parse(specification: str, known: dict[str, FieldInfo]) -> Dimension:
    name, _, text = specification.partition("=")
    if name not in known:
        raise suggest("setting", name, list(known), "--over FIELD=LOW..HIGH or FIELD=A,B")
    if name.startswith(_INCOMPARABLE):
        rule = "cannot be varied: trials with another loss, metric or held-out text do not compare"
        remedy = "Run each value by itself, and put the runs side by side with maskwright compare."
        raise ConfigError(name, text, rule, remedy)
    annotation = known[name].annotation
    found = _RANGE.fullmatch(text)
    if found is None:
        choices = tuple(filter(None, text.split(",")))
        if len(choices) < 2:
            rule = "is neither a range nor a list of values"
            raise ConfigError(name, text, rule, f"Give {name}=LOW..HIGH[:log] or {name}=A,B.")
        for choice in choices:
            convert(choice, annotation, name)
        return Dimension(name, choices=choices)
    low, high = (convert(found[end], annotation, name) for end in ("low", "high"))
    is_log = found["log"] is not None
    is_number = all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high))
    if not is_number or not low < high or (is_log and low <= 0):
        rule = "is no range of numbers" + " above 0" * is_log
        raise ConfigError(name, text, rule, "Give LOW..HIGH, the lower end first.")
    return Dimension(name, low, high, is_log, isinstance(low, int) and isinstance(high, int))
