"""What a user can choose about fine-tuning: settings, tasks and the presets of GLUE.

Presets know the files of the GLUE benchmark (Wang et al., "GLUE", 2019) as it distributes them, or
as their sources do (CoLA's ``in_domain_*.tsv``, the STS benchmark as CSV).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError, CorpusError
from maskwright.finetuning.metrics import Metric
from maskwright.finetuning.table_files import Column
from maskwright.model.config import Pooling
from maskwright.train.config import Precision

# To add a task, write its class and add its line: where the class is, and the help of the command.
TASKS: dict[str, tuple[str, str]] = {
    "classification": (
        "maskwright.finetuning.text_tasks:Classification",
        "one label of several, of a text or of a pair (columns sentence1, sentence2)",
    ),
    "multilabel": (
        "maskwright.finetuning.text_tasks:MultiLabel",
        "any number of labels: a|b, a,b or a JSON list",
    ),
    "regression": ("maskwright.finetuning.text_tasks:Regression", "a number"),
    "tokens": (
        "maskwright.finetuning.token_task:Tokens",
        "a tag for each word, in CoNLL columns (IO, IOB, BIO, BIOES)",
    ),
    "embedding": (
        "maskwright.finetuning.embedding:Embedding",
        "vectors in which the two texts of each pair are near",
    ),
}

# A small set of examples needs more epochs than a large one (Mosbach et al., "On the Stability of
# Fine-tuning BERT", 2021), a wide encoder a lower rate than a narrow one: at the width of ELECTRA's
# base model this is the rate that Clark et al. (2020) fine-tuned it with. There lower layers want
# lower rates; in a narrow encoder that cost accuracy (docs/experiments.md).
_STEPS, _FEWEST_EPOCHS, _MOST_EPOCHS = 1000, 2.0, 20.0
_NARROW, _RATE, _DECAY = 256, 1e-3, 0.9


@dataclass(frozen=True)
class FinetuneConfig:
    """Budget, rates and regularization; the defaults suit encoders of some million parameters."""

    epochs: float | None = setting(
        None, "passes over the training examples, at most; none = 2 to 20, for some 1,000 steps"
    )
    batch_size: int = setting(32, "examples a step")
    learning_rate: float | None = setting(
        None,
        "peak rate of the head, that of the encoder decays by layer; none = by the model's width: "
        "0.001 up to 256, 0.0001 at 768",
    )
    layer_decay: float | None = setting(
        None,
        "factor on the rate from one layer to the one below it; none = 1 up to a width of 256, else"
        " 0.9",
    )
    warmup_share: float = setting(0.1, "share of the steps in which the rate rises")
    weight_decay: float = setting(0.01, "of AdamW, on matrices")
    dropout: float = setting(0.1, "in the encoder and before the output")
    grad_clip: float = setting(1.0, "gradients are scaled down to this norm; 0: never")
    pooling: Pooling | None = setting(
        None,
        "the vector of a text; bi = how two texts, encoded apart, compare; none = bi for a number "
        "of two texts up to a width of 256, else mean where the family leaves the choice",
    )
    max_length: int | None = setting(None, "tokens of an input; none = what the model takes")
    dimensions: tuple[int, ...] = setting(
        (), "of embeddings: train the first N numbers of a vector as well, e.g. 64,128"
    )
    negatives: Literal["batch", "mined"] = setting(
        "batch", "of embeddings: wrong answers are the other pairs of the batch, or mined as well"
    )
    class_weights: bool = setting(False, "weight labels so that all count alike")
    metric: Metric | None = setting(None, "what decides which weights are kept; none = the task's")
    evaluations_an_epoch: float = setting(2.0, "scores on the validation examples, each epoch")
    patience: int = setting(4, "scores without a better one that end the training; 0: never")
    seeds: int = setting(1, "runs; they differ in the head, the order and the dropout")
    first_seed: int = setting(0, "the seed of the first run")
    precision: Precision = setting("auto", "bf16 autocast; auto: only where hardware has it")
    device: str = setting("auto", "cpu, cuda, cuda:1, mps; auto: a GPU if there is one")

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "evaluations_an_epoch"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(name, value, "must be above 0")
        for name in ("batch_size", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        for name in ("weight_decay", "grad_clip", "patience", "first_seed"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must not be negative")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("layer_decay", self.layer_decay, rule, "1 is one rate for all.")
        for name in ("warmup_share", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 0 and below 1")
        if self.max_length is not None and self.max_length < 8:
            raise ConfigError("max_length", self.max_length, "must be at least 8")

    def find_length(self, longest: int) -> int:
        """Return the tokens of an input; raise ConfigError if `longest` of the model is less."""
        if self.max_length is not None and self.max_length > longest:
            rule = f"is more than the {longest} tokens that the model takes"
            raise ConfigError("max_length", self.max_length, rule, "Remove it.")
        return self.max_length or longest

    def resolve(self, num_examples: int, width: int) -> "FinetuneConfig":
        """Return the config with values for `epochs`, `learning_rate` and `layer_decay`.

        Args:
            num_examples: the number of training examples.
            width: the hidden size of the model.
        """
        epochs, rate, decay = self.epochs, self.learning_rate, self.layer_decay
        if epochs is None:
            passes = _STEPS * self.batch_size / num_examples
            epochs = round(min(max(passes, _FEWEST_EPOCHS), _MOST_EPOCHS), 1)
        if rate is None:
            rate = float(f"{_RATE * min(1, _NARROW / width) ** 2:.1g}")
        if decay is None:
            decay = 1.0 if width <= _NARROW else _DECAY
        return replace(self, epochs=epochs, learning_rate=rate, layer_decay=decay)

    def choose_pooling(self, width: int, is_pair: bool, is_number: bool) -> Pooling | None:
        """Return the pooling, None if it is that of the family's class.

        Raises:
            ConfigError: single texts are to be compared.
        """
        if self.pooling == "bi" and not is_pair:
            rule = "compares the two texts of a pair, and these examples have one"
            raise ConfigError("pooling", self.pooling, rule, "Remove it.")
        is_graded = is_pair and is_number and width <= _NARROW
        return self.pooling or ("bi" if is_graded else None)

    def describe_budget(self) -> str:
        """Return the epochs and the learning rate of a resolved config as one line."""
        return f"epochs at most {self.epochs:g}, learning rate {self.learning_rate:g}"


@dataclass(frozen=True)
class GlueFiles:
    """One layout of the files of a GLUE task: their names, their columns, and the header."""

    train: str
    valid: str
    columns: Mapping[str, Column]
    has_header: bool = True

    def list_missing(self, folder: Path) -> list[str]:
        """Return the names of the files that are not in a folder."""
        return [name for name in (self.train, self.valid) if not (folder / name).is_file()]


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its folder there, our task, its metrics, and the layouts of its files."""

    folder: str
    task: str
    metrics: tuple[Metric, ...]
    layouts: tuple[GlueFiles, ...]

    def find_layout(self, path: Path) -> GlueFiles:
        """Return the layout of a file, by name or extension; raise CorpusError if none fits."""
        by_name = [layout for layout in self.layouts if path.name in (layout.train, layout.valid)]
        suffix = path.name.removesuffix(".gz").rpartition(".")[2]
        by_suffix = [layout for layout in self.layouts if layout.train.endswith(f".{suffix}")]
        found = by_name or by_suffix
        if not found:
            both = [name for layout in self.layouts for name in (layout.train, layout.valid)]
            raise CorpusError(
                f"{path} is not a file of {self.folder} ({', '.join(dict.fromkeys(both))})."
                f" Give --task {self.task} and --columns instead of --preset."
            )
        return found[0]


_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
_COLA: dict[str, Column] = {"sentence1": 3, "label": 1}
_STSB_CSV: dict[str, Column] = {"sentence1": 0, "sentence2": 1, "label": 2}
_SST2 = {"sentence1": "sentence", "label": "label"}
_MRPC = {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"}
_QQP = {"sentence1": "question1", "sentence2": "question2", "label": "is_duplicate"}


def _classify(folder: str, metrics: tuple[Metric, ...], *layouts: GlueFiles) -> GlueTask:
    return GlueTask(folder, "classification", metrics, layouts)


def _tsv(columns: Mapping[str, Column], valid: str = "dev.tsv") -> GlueFiles:
    return GlueFiles("train.tsv", valid, columns)


GLUE: dict[str, GlueTask] = {
    "cola": _classify(
        "CoLA",
        ("matthews", "accuracy"),
        GlueFiles("train.tsv", "dev.tsv", _COLA, has_header=False),
        GlueFiles("in_domain_train.tsv", "in_domain_dev.tsv", _COLA, has_header=False),
    ),
    "sst2": _classify(
        "SST-2", ("accuracy",), _tsv(_SST2), GlueFiles("train_full.tsv", "dev.tsv", _SST2)
    ),
    "mrpc": _classify("MRPC", ("f1", "accuracy"), _tsv(_MRPC)),
    "stsb": GlueTask(
        "STS-B",
        "regression",
        ("spearman", "pearson"),
        (
            _tsv({**_PAIR, "label": "score"}),
            GlueFiles("stsb-en-train.csv", "stsb-en-dev.csv", _STSB_CSV, has_header=False),
        ),
    ),
    "qqp": _classify("QQP", ("f1", "accuracy"), _tsv(_QQP)),
    "mnli": _classify(
        "MNLI", ("accuracy",), _tsv({**_PAIR, "label": "gold_label"}, "dev_matched.tsv")
    ),
    "qnli": _classify(
        "QNLI", ("accuracy",), _tsv({**_PAIR, "sentence1": "question", "sentence2": "sentence"})
    ),
    "rte": _classify("RTE", ("accuracy",), _tsv(_PAIR)),
}
