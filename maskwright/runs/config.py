"""The whole configuration of a pretraining run: recipe, file and flags, in this order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

from maskwright.config import Plain, fields_of, from_mapping, merge, read_yaml, section, setting
from maskwright.corpus.config import CorpusConfig
from maskwright.data.config import DataConfig, MaskingConfig, MixtureConfig
from maskwright.errors import ConfigError
from maskwright.files import as_mapping
from maskwright.model.config import SIZE_FIELDS, ModelConfig
from maskwright.objectives.config import OBJECTIVES, DistillConfig, ObjectiveConfig, choose_name
from maskwright.optim.config import OptimConfig
from maskwright.recipes import load_recipe
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig, check_extension
from maskwright.train.config import BUDGETS, TrainConfig

SuiteName = Literal["mlm", "fill", "pll", "blimp"]
# The layer that a value is from; a value given in Python counts as a flag.
GivenBy = Literal["default", "recipe", "file", "flag"]


@dataclass(frozen=True)
class EvaluateConfig:
    """Suites at validations, in their fast form; see docs/evaluation.md."""

    suites: tuple[SuiteName, ...] = setting(
        (), "suites to score at validations: mlm, fill, pll, blimp"
    )
    every_validations: int = setting(1, "score the suites at every N-th validation and the last")
    blimp: str | None = setting(
        None, "folder of minimal pairs (JSON lines) for the suite blimp", is_path=True
    )

    def __post_init__(self) -> None:
        if self.every_validations < 1:
            raise ConfigError("every_validations", self.every_validations, "must be at least 1")
        if ("blimp" in self.suites) != (self.blimp is not None):
            rule = "and evaluate.suites contradict each other: the suite blimp needs its folder"
            raise ConfigError("blimp", self.blimp, rule, "Set both, or neither.")


@cache
def _defaults() -> Plain:
    return {info.name: info.default for info in fields_of(PretrainConfig)}


DEFAULT_RECIPE = "auto"  # suits any budget (research/experiments.md)
CONTINUE_RECIPE = "continue"  # the default for runs with init_from


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run from raw text (or prepared data) to a model folder.

    ::

        config = PretrainConfig(text=("corpus/",), train=TrainConfig(max_steps=1000))
        pretrain(config=config, out="runs/mine")
    """

    text: tuple[str, ...] = setting(
        (), "files, folders, globs, pydocs, hf:NAME, or prepared data", is_path=True
    )
    init_from: str | None = setting(
        None,
        "continue pretraining this model: a folder, a run, or hf:NAME[@REVISION]",
        is_path=True,
    )
    teacher: str | None = setting(
        None,
        "learn from this model's predictions, too, by default with half of its layers: a folder, a "
        "run, or hf:NAME[@REVISION]",
        is_path=True,
    )
    private: bool = setting(
        False, "keep no sample of the text: not in the log, the report, the output"
    )
    seed: int = setting(0, "random seed of the initial weights, the data order and the masks")
    corpus: CorpusConfig = section(CorpusConfig)
    select: SelectionConfig = section(SelectionConfig)
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    data: DataConfig = section(DataConfig)
    mixture: MixtureConfig = section(MixtureConfig)
    masking: MaskingConfig = section(MaskingConfig)
    model: ModelConfig = section(ModelConfig)
    objective: ObjectiveConfig = section(ObjectiveConfig)
    distill: DistillConfig = section(DistillConfig)
    optim: OptimConfig = section(OptimConfig)
    train: TrainConfig = section(TrainConfig)
    evaluate: EvaluateConfig = section(EvaluateConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must be between 0 and 2^63 - 1")
        if not any(getattr(self.train, budget) for budget in BUDGETS):
            raise ConfigError(
                f"train.{BUDGETS[0]}", None, "and no other budget is set", "Set it, e.g. to 10."
            )
        if self.init_from is None:
            check_extension(self.tokenizer)
        self.distill.check_teacher(self.teacher)
        self._check_objective()

    def _check_objective(self) -> None:
        name = choose_name(self.objective, self.data, self.masking)
        entry, defaults = OBJECTIVES[name], _defaults()
        for other, reason in entry.conflicts.items():
            value = attrgetter(other)(self)
            if value != defaults[other]:
                rule = f"cannot be combined with {entry.switch or f'objective.name = {name}'}"
                raise ConfigError(other, value, f"{rule}: {reason}", "Remove one of the two.")

    @property
    def valid_row_length(self) -> int:
        """Row length of validations, in tokens."""
        return self.train.valid_seq_length or self.data.max_seq_length

    @property
    def valid_rows(self) -> DataConfig:
        """Rows of single segments, as in validations."""
        return replace(self.data, max_seq_length=self.valid_row_length, pairs=None)


def default_recipe(overrides: Mapping[str, Any]) -> str:
    """Return the recipe of a run without recipe and file, which depends on ``init_from``."""
    return CONTINUE_RECIPE if overrides.get("init_from") else DEFAULT_RECIPE


@dataclass(frozen=True)
class ConfigLayers:
    """The layers of a configuration, each over the one before it: a recipe (None if a file has
    none), the values of a YAML file, and those that are set one by one, nested.
    """

    recipe: str | None = None
    file: Mapping[str, Any] = field(default_factory=Plain)
    singly: Mapping[str, Any] = field(default_factory=Plain)

    @classmethod
    def read(
        cls, recipe: str | None, path: Path | None, singly: Mapping[str, Any]
    ) -> "ConfigLayers":
        """Read a file; its recipe or the default is the lowest layer unless `recipe` is given."""
        file = read_yaml(path) if path is not None else {"recipe": default_recipe(singly)}
        named = file.pop("recipe", None)
        if recipe is None and named is not None:
            recipe = str(named)
        return cls(recipe, file, singly)

    @property
    def given(self) -> Plain:
        """The values that the user set over the recipe."""
        return put_over(self.file, self.singly)

    @property
    def leaves_size_open(self) -> bool:
        """True if the recipe leaves the size, and what goes with it, to the budget."""
        return self.recipe is not None and bool(
            as_mapping(load_recipe(self.recipe).values.get("model")).get("sizes")
        )

    def gives(self, name: str) -> bool:
        """Return True if the user set the field `name`, dotted, over the recipe."""
        return _holds(self.given, name)

    def find_origin(self, name: str) -> GivenBy:
        """Return the layer that the value of the field `name`, dotted, is from."""
        layers = {"flag": self.singly, "file": self.file, "recipe": self._recipe_values}
        merged = self._merge({})  # without what a higher layer has put out of force
        found = (layer for layer, values in layers.items() if _holds(values, name))
        return cast(GivenBy, next(found, "default")) if _holds(merged, name) else "default"

    @property
    def _recipe_values(self) -> Plain:
        return load_recipe(self.recipe).values if self.recipe is not None else {}

    def _merge(self, suited: Mapping[str, Any]) -> Plain:
        values = self._recipe_values
        for layer in (suited, self.file, self.singly):
            values = put_over(values, layer)
        return values

    def resolve(self, suited: Mapping[str, Any] | None = None) -> PretrainConfig:
        """Return the merged configuration; raise as the function `resolve`.

        Args:
            suited: values that the budget chose, over the recipe and under what was given. Row
                lengths belong together: a schedule that ends elsewhere than a length that was
                given, or a length beside a schedule that was given, is left out.
        """
        values = self._merge(_leave_lengths(suited or {}, self.given))
        if self.recipe == CONTINUE_RECIPE and not values.get("init_from"):
            rule = f"is required by the recipe {self.recipe}, which continues an existing model"
            raise ConfigError("init_from", None, rule, "Name a model in init_from.")
        return from_mapping(PretrainConfig, values)


def resolve(
    recipe: str | None = None,
    config_file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> PretrainConfig:
    """Return the configuration of a recipe, overridden by a YAML file and then by single values.

    Raises:
        ConfigError: an unknown key, or a value that breaks a rule.
    """
    return ConfigLayers.read(recipe, config_file, overrides or {}).resolve()


# A field and some of its values, and the fields that have no effect then.
_WITHOUT_EFFECT: tuple[tuple[str, tuple[Any, ...], tuple[str, ...]], ...] = (
    ("optim.name", ("adamw",), (
        "muon_learning_rate", "muon_weight_decay", "muon_beta2", "momentum", "newton_schulz_steps",
    )),
    ("optim.schedule", ("linear", "cosine", "onecycle", "noam"), ("decay_share",)),
    ("masking.strategy", ("tokens", "words"), ("span_lengths", "max_span_length")),
    ("objective.name", ("mlm",), tuple(f.name for f in fields_of(ObjectiveConfig))),
    ("train.num_candidates", (0,), ("candidate_share",)),
)  # fmt: skip


def list_ignored(config: PretrainConfig, given: Mapping[str, Any]) -> list[str]:
    """Return a line for each value of `given`, set singly, that the method does not use.

    It is no error, so that a sweep can vary methods and their settings together.
    """
    lines: list[str] = []
    for decider, values, names in _WITHOUT_EFFECT:
        chosen, section_name = attrgetter(decider)(config), decider.partition(".")[0]
        if chosen in values:
            own = as_mapping(given.get(section_name)).keys() - {decider.partition(".")[2]}
            ignored = [name for name in names if name in own]
            lines += [f"{section_name}.{n} has no effect: {decider} is {chosen}" for n in ignored]
    return lines


def _holds(values: Mapping[str, Any], name: str) -> bool:
    """Return True if nested values hold the field `name`, dotted."""
    *section_names, own = name.split(".")
    for section_name in section_names:
        values = as_mapping(values.get(section_name))
    return own in values


def _leave_lengths(suited: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values that the budget chose, without row lengths that contradict what was given."""
    train, data = dict(as_mapping(suited.get("train"))), dict(as_mapping(suited.get("data")))
    length = as_mapping(given.get("data")).get("max_seq_length")
    is_elsewhere = length is not None and not _ends_at(train, length)
    if is_elsewhere:
        train.pop("seq_length_schedule", None)
    if is_elsewhere or is_set(as_mapping(given.get("train")).get("seq_length_schedule")):
        data.pop("max_seq_length", None)
    return {**suited, "train": train, "data": data} if suited else suited


def put_over(values: Mapping[str, Any], layer: Mapping[str, Any]) -> Plain:
    """Merge a higher layer into `values`: a file over a recipe, flags over a file.

    Fields with the same purpose are replaced, too: a budget replaces all budgets, batch tokens and
    their schedule replace each other, a row length replaces a schedule of row lengths that ends at
    another one, and a model size and its choice by the budget replace each other.

    Raises:
        ConfigError: the layer sets two of them. One with every field, the config.yaml of a run,
            may: there the schedule of batch tokens decides, and the size that the run had.
    """
    train, data, model = (as_mapping(layer.get(name)) for name in ("train", "data", "model"))
    below = {name: as_mapping(values.get(name)) for name in ("train", "model")}
    replaced: set[str] = set()
    if any(is_set(train.get(name)) for name in BUDGETS):
        replaced.update(BUDGETS)
    if is_set(train.get("batch_tokens_schedule")):
        _check_one("train", train, TrainConfig, "batch_tokens_schedule", ("batch_tokens",))
        replaced.add("batch_tokens")
    if "batch_tokens" in train:
        replaced.add("batch_tokens_schedule")
    if "max_seq_length" in data and not _ends_at(below["train"], data["max_seq_length"]):
        replaced.add("seq_length_schedule")
    sized = [name for name in SIZE_FIELDS if name in model]
    if sized:
        replaced.add("sizes")
    if is_set(model.get("sizes")):
        _check_one("model", model, ModelConfig, "sizes", SIZE_FIELDS)
        replaced.update(SIZE_FIELDS)
        if sized:
            layer = {**layer, "model": {n: v for n, v in model.items() if n != "sizes"}}
    kept = {
        section_name: {n: value for n, value in fields.items() if n not in replaced}
        for section_name, fields in below.items()
        if fields
    }
    return merge({**values, **kept}, layer)


def _ends_at(train: Mapping[str, Any], length: Any) -> bool:
    """Return True if the schedule of row lengths ends at a length, given as a number or text."""
    stages: Any = train.get("seq_length_schedule") or [""]
    last = str(stages).rpartition(",")[2] if isinstance(stages, str) else str(stages[-1])
    return last.rpartition(":")[2].strip() == str(length).strip()


def is_set(value: Any) -> bool:
    """Return True if a value, which may be text, is neither none nor an empty list."""
    return value is not None and str(value).lower() not in ("", "none", "null", "[]", "()")


def _check_one(
    section_name: str,
    values: Mapping[str, Any],
    cls: type,
    name: str,
    others: tuple[str, ...],
) -> None:
    """Raise if a layer sets a field and one of `others`, unless it sets every field of `cls`."""
    if not is_set(values.get(name)) or values.keys() >= {f.name for f in fields(cls)}:
        return
    for other in others:
        if other in values:
            rule = f"cannot be combined with {section_name}.{name}"
            raise ConfigError(
                f"{section_name}.{other}", values[other], rule, "Remove one of the two."
            )
