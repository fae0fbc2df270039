"""What a run of fine-tuning is asked for: settings, task, files, model, and the GLUE presets.

A preset covers the file layouts of a GLUE task (Wang et al., "GLUE", 2019): that of the benchmark
and that of the original source (CoLA's ``in_domain_*.tsv``, the STS benchmark as CSV).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from maskwright.config import check_numbers, section, setting
from maskwright.corpus.column_roles import AFTER, GROUP, Column
from maskwright.errors import ConfigError, CorpusError
from maskwright.finetuning.metrics import Metric
from maskwright.model.config import Pooling
from maskwright.objectives.config import SoftTargetsConfig
from maskwright.provenance import show_computation
from maskwright.runs.run_directory import MODEL_NAME
from maskwright.train.config import Precision

# To add a task, write its class and add a line: the import path of the class and its help text.
TASKS: dict[str, tuple[str, str]] = {
    "classification": (
        "maskwright.finetuning.text_tasks:Classification",
        "one of several labels for a text or for a pair (columns sentence1, sentence2)",
    ),
    "multilabel": (
        "maskwright.finetuning.text_tasks:MultiLabel",
        "any number of labels for each text: a|b, a,b or a JSON list",
    ),
    "regression": ("maskwright.finetuning.text_tasks:Regression", "a number for each text or pair"),
    "tokens": (
        "maskwright.finetuning.token_task:Tokens",
        "a tag for each word, in CoNLL columns (IO, BIO, BIOES and others)",
    ),
    "spans": (
        "maskwright.finetuning.span_task:Spans",
        "the part of a text that answers a question, in files of SQuAD",
    ),
    "ranking": (
        "maskwright.finetuning.text_tasks:Ranking",
        "the relevance of a passage to a query, to rank passages again after a search",
    ),
    "embedding": (
        "maskwright.finetuning.embedding:Embedding",
        "similar vectors for the two texts of each pair",
    ),
}

# A small training set needs more epochs than a large one (Mosbach et al., "On the Stability of
# Fine-tuning BERT", 2021). A wide encoder needs a lower learning rate than a narrow one: at the
# width of ELECTRA-base this is the rate of Clark et al. (2020). Layer-wise decay helps wide
# encoders; it cost narrow ones accuracy (research/experiments.md).
_STEPS, _MIN_EPOCHS, _MAX_EPOCHS = 1000, 2.0, 20.0
_NARROW, _RATE, _DECAY = 256, 1e-3, 0.9


@dataclass(frozen=True)
class FinetuneConfig:
    """Settings of fine-tuning; the defaults suit encoders of a few million parameters."""

    epochs: float | None = setting(
        None, "maximum passes over the training examples; none = 2 to 20, for about 1,000 steps"
    )
    batch_size: int = setting(32, "examples per step")
    learning_rate: float | None = setting(
        None,
        "peak rate of the head; layer_decay lowers it for the encoder; none = by hidden size: "
        "0.001 up to 256, 0.0001 at 768",
    )
    layer_decay: float | None = setting(
        None,
        "learning rate of a layer relative to the layer above it; none = 1 up to a hidden size of "
        "256, else 0.9",
    )
    warmup_share: float = setting(0.1, "share of the steps in which the learning rate rises")
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw", "muon: Muon for the hidden matrices, AdamW for the rest; adamw: AdamW for all"
    )
    muon_learning_rate: float = setting(0.002, "peak rate of Muon; layer_decay lowers it, too")
    weight_decay: float = setting(0.01, "weight decay, on matrices only")
    dropout: float = setting(0.1, "dropout in the encoder and before the output layer")
    grad_clip: float = setting(1.0, "maximum gradient norm; 0: no clipping")
    pooling: Pooling | None = setting(
        None,
        "pooling; bi encodes the two texts of a pair separately and compares them; none = bi for "
        "regression on pairs up to a hidden size of 256, else mean, or the model family's only one",
    )
    max_length: int | None = setting(None, "maximum tokens per input; none = the model's maximum")
    dimensions: tuple[int, ...] = setting(
        (), "embedding: also train the first N dimensions of a vector, such as 64,128"
    )
    negatives: Literal["batch", "mined"] = setting(
        "batch", "embedding: negatives are other pairs of the batch (batch), or also mined (mined)"
    )
    objective: Literal["simcse", "tsdae"] = setting(
        "simcse",
        "embedding, text without labels: find a text under other dropout (simcse), or rebuild it "
        "from the vector of 40 % of its tokens (tsdae)",
    )
    beside: Literal["auto", "on", "off"] = setting(
        "auto",
        "also fit a linear model of words and vectors, whose logits are added; auto: for labels or "
        "numbers of up to 1,000 texts or pairs, if it helps in 3 folds of the training examples",
    )
    class_weights: bool = setting(False, "weight the loss so that all labels have the same weight")
    metric: Metric | None = setting(None, "metric that selects the best weights; none = the task's")
    evaluations_an_epoch: float = setting(2.0, "evaluations on the validation examples per epoch")
    patience: int = setting(
        4, "evaluations without improvement that end a run in its second half; 0: never"
    )
    seeds: int = setting(1, "number of runs, which differ in new weights, data order and dropout")
    folds: int = setting(
        0, "also train and score a model for each of N parts of the examples (cross-validation)"
    )
    first_seed: int = setting(0, "seed of the first run; each further run adds 1")
    precision: Precision = setting(
        "auto", "of training: bf16 autocast; auto: if the hardware supports it"
    )
    device: str = setting("auto", "cpu, cuda, cuda:1, mps; auto: a GPU if there is one")
    unlabeled_minutes: float = setting(3.0, "time for pretraining on the text of --unlabeled")
    private: bool = setting(
        False, "keep no text of an example: no predictions, no mistakes in the report"
    )
    distill: SoftTargetsConfig = section(SoftTargetsConfig)

    def __post_init__(self) -> None:
        check_numbers(self, "epochs", above=0, at_most=1_000_000)
        rates = ("learning_rate", "muon_learning_rate")
        check_numbers(self, *rates, "evaluations_an_epoch", "unlabeled_minutes", above=0)
        check_numbers(self, "batch_size", "seeds", at_least=1)
        check_numbers(self, "weight_decay", "grad_clip", "patience", at_least=0)
        check_numbers(self, "first_seed", at_least=0, at_most=2**63 - 1)
        if self.folds:
            check_numbers(self, "folds", at_least=2, remedy="Try 5; 0: none.")
        check_numbers(self, "layer_decay", above=0, at_most=1, remedy="1: one rate for all.")
        check_numbers(self, "warmup_share", "dropout", at_least=0, below=1)
        check_numbers(self, "max_length", at_least=8)

    def find_length(self, longest: int) -> int:
        """Return the tokens per input; raise ConfigError if they exceed the model's `longest`."""
        if self.max_length is not None and self.max_length > longest:
            rule = f"is more than the model's maximum of {longest} tokens"
            raise ConfigError("max_length", self.max_length, rule, "Remove it.")
        return self.max_length or longest

    def resolve(self, num_examples: int, width: int) -> "FinetuneConfig":
        """Return the config with values for `epochs`, `learning_rate` and `layer_decay`.

        `width` is the hidden size of the model.
        """
        epochs, rate, decay = self.epochs, self.learning_rate, self.layer_decay
        if epochs is None:
            passes = _STEPS * self.batch_size / num_examples
            epochs = round(min(max(passes, _MIN_EPOCHS), _MAX_EPOCHS), 1)
        if rate is None:
            rate = float(f"{_RATE * min(1, _NARROW / width) ** 2:.1g}")
        if decay is None:
            decay = 1.0 if width <= _NARROW else _DECAY
        return replace(self, epochs=epochs, learning_rate=rate, layer_decay=decay)

    def choose_pooling(self, width: int, is_pair: bool, is_number: bool) -> Pooling | None:
        """Return the pooling; None: that of the family. Raise ConfigError for ``bi`` and texts."""
        if self.pooling == "bi" and not is_pair:
            rule = "compares the two texts of a pair, but these examples are single texts"
            raise ConfigError("pooling", self.pooling, rule, "Remove it.")
        is_graded = is_pair and is_number and width <= _NARROW
        return self.pooling or ("bi" if is_graded else None)

    def describe_budget(self, computation: Mapping[str, str]) -> str:
        """Return the epochs and the learning rate of a resolved config, and what computes them."""
        budget = f"epochs at most {self.epochs:g}, learning rate {self.learning_rate:g}"
        return f"{budget}, on {show_computation(computation)}"


@dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """The files of examples.

    Attributes:
        task: the name of the task.
        valid: examples that select the weights; None: `valid_share` of the training examples.
        test: examples on which the selected weights are scored, once; None: there are none.
        columns: the name or position of each column by role.
        has_header: True if the first row of a table holds names; None: it is inferred.
        metrics: metrics to report before those of the task; the first selects the weights unless
            the config names another.
        group: the column of what training and validation must not share, such as a customer.
        valid_after: ``COLUMN=VALUE``: examples from this value on, such as a date, are validation.
        skips_short: True if rows with too few columns are skipped and counted (GLUE's own files
            have some); False makes them an error.
    """

    task: str
    train: Path
    valid: Path | None = None
    test: Path | None = None
    columns: Mapping[str, Column] = field(default_factory=dict[str, Column])
    has_header: bool | None = None
    valid_share: float = 0.1
    metrics: tuple[Metric, ...] = ()
    skips_short: bool = False
    group: str | None = None
    valid_after: str | None = None

    @property
    def first_valid(self) -> tuple[str, str] | None:
        """The column and the value of `valid_after`."""
        if self.valid_after is None:
            return None
        column, _, value = self.valid_after.partition("=")
        return column, value

    def columns_of(self, path: Path) -> dict[str, Column]:
        """Return the columns of a file by role; only that of training is split."""
        columns: dict[str, Column] = {**self.columns}
        if path == self.train and self.group is not None:
            columns[GROUP] = self.group
        if path == self.train and (first := self.first_valid):
            columns[AFTER] = first[0]
        return columns


@dataclass(frozen=True)
class Request:
    """Everything that the scores of a run depend on.

    Attributes:
        model: the model folder to fine-tune.
        control: True if an encoder with random weights is also trained and scored.
        teacher: the folder of a fine-tuned model whose answers are learned, too.
    """

    model: Path
    files: TaskFiles
    config: FinetuneConfig
    control: bool = False
    teacher: Path | None = None

    @property
    def origin(self) -> str:
        """The name of the model to fine-tune, for the card of the new one."""
        inner = (MODEL_NAME, "0_Transformer")  # in a run directory; in one of sentence-transformers
        return (self.model.parent if self.model.name in inner else self.model).name


@dataclass(frozen=True)
class GlueFiles:
    """One file layout of a GLUE task: file names, columns, and whether there is a header."""

    train: str
    valid: str
    columns: Mapping[str, Column]
    has_header: bool = True

    def list_missing(self, folder: Path) -> list[str]:
        """Return the names of the files that `folder` lacks."""
        return [name for name in (self.train, self.valid) if not (folder / name).is_file()]


@dataclass(frozen=True)
class GlueTask:
    """A GLUE task: its folder name, the task in `TASKS`, its metrics and its file layouts."""

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

    def make_files(
        self, train: Path, columns: Mapping[str, Column], has_header: bool | None, **more: Any
    ) -> TaskFiles:
        """Return files in the layout of `train`, except for the given columns and header."""
        layout = self.find_layout(train)
        return TaskFiles(
            task=self.task,
            train=train,
            columns={**layout.columns, **columns},
            has_header=layout.has_header if has_header is None else has_header,
            metrics=self.metrics,
            **more,
        )


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


GLUE_TASKS: dict[str, GlueTask] = {
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
