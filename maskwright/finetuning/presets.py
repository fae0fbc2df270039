"""Layouts and metrics of the GLUE benchmark's tasks. Wang et al., "GLUE", 2019.

Files are as the benchmark distributes them, or as their sources do (CoLA's ``in_domain_*.tsv``,
the STS benchmark as CSV).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from maskwright.errors import CorpusError
from maskwright.finetuning.config import Task
from maskwright.finetuning.metrics import Metric
from maskwright.finetuning.tables import Column


@dataclass(frozen=True)
class Layout:
    """Names of files and their columns."""

    train: str
    valid: str
    columns: Mapping[str, Column]
    has_header: bool = True

    def list_missing(self, folder: Path) -> list[str]:
        """Which of both files are not in a folder."""
        return [name for name in (self.train, self.valid) if not (folder / name).is_file()]


@dataclass(frozen=True)
class GlueTask:
    """One task of the benchmark; `folder` as it is called there."""

    folder: str
    task: Task
    metrics: tuple[Metric, ...]
    layouts: tuple[Layout, ...]

    def find_layout(self, path: Path) -> Layout:
        """The layout of a file, by its name, or else by its ending."""
        by_name = [layout for layout in self.layouts if path.name in (layout.train, layout.valid)]
        suffix = path.name.removesuffix(".gz").rpartition(".")[2]
        by_suffix = [layout for layout in self.layouts if layout.train.endswith(f".{suffix}")]
        found = by_name or by_suffix
        if not found:
            both = [name for layout in self.layouts for name in (layout.train, layout.valid)]
            raise CorpusError(
                f"{path} is no file of {self.folder}: they are {', '.join(dict.fromkeys(both))}. "
                f"Say --task {self.task} and --columns instead of --preset."
            )
        return found[0]

    def find_files(self, folder: Path) -> tuple[Path, Path] | None:
        """Training and validation examples in a folder, if they are there."""
        for layout in self.layouts:
            if not layout.list_missing(folder):
                return folder / layout.train, folder / layout.valid
        return None

    def list_missing(self, folder: Path) -> list[str]:
        """The files that a folder lacks of the layout that it comes nearest to."""
        return min((layout.list_missing(folder) for layout in self.layouts), key=len)


_PAIR = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
_COLA: dict[str, Column] = {"sentence1": 3, "label": 1}
_STSB_CSV: dict[str, Column] = {"sentence1": 0, "sentence2": 1, "label": 2}
_SST2 = {"sentence1": "sentence", "label": "label"}
_MRPC = {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"}
_QQP = {"sentence1": "question1", "sentence2": "question2", "label": "is_duplicate"}
_MNLI = {**_PAIR, "label": "gold_label"}
_QNLI = {"sentence1": "question", "sentence2": "sentence", "label": "label"}
GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA",
        "classification",
        ("matthews", "accuracy"),
        (
            Layout("train.tsv", "dev.tsv", _COLA, has_header=False),
            Layout("in_domain_train.tsv", "in_domain_dev.tsv", _COLA, has_header=False),
        ),
    ),
    "sst2": GlueTask(
        "SST-2",
        "classification",
        ("accuracy",),
        (Layout("train.tsv", "dev.tsv", _SST2), Layout("train_full.tsv", "dev.tsv", _SST2)),
    ),
    "mrpc": GlueTask(
        "MRPC", "classification", ("f1", "accuracy"), (Layout("train.tsv", "dev.tsv", _MRPC),)
    ),
    "stsb": GlueTask(
        "STS-B",
        "regression",
        ("spearman", "pearson"),
        (
            Layout("train.tsv", "dev.tsv", {**_PAIR, "label": "score"}),
            Layout("stsb-en-train.csv", "stsb-en-dev.csv", _STSB_CSV, has_header=False),
        ),
    ),
    "qqp": GlueTask(
        "QQP", "classification", ("f1", "accuracy"), (Layout("train.tsv", "dev.tsv", _QQP),)
    ),
    "mnli": GlueTask(
        "MNLI", "classification", ("accuracy",), (Layout("train.tsv", "dev_matched.tsv", _MNLI),)
    ),
    "qnli": GlueTask(
        "QNLI", "classification", ("accuracy",), (Layout("train.tsv", "dev.tsv", _QNLI),)
    ),
    "rte": GlueTask(
        "RTE", "classification", ("accuracy",), (Layout("train.tsv", "dev.tsv", _PAIR),)
    ),
}


def find_tasks(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """The tasks whose files are in the subfolders of `folder`: name, training, validation."""
    for name, task in GLUE.items():
        files = task.find_files(folder / task.folder)
        if files:
            yield name, *files


def find_gaps(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The subfolders of tasks that lack files, and which."""
    for task in GLUE.values():
        own = folder / task.folder
        if own.is_dir() and (missing := task.list_missing(own)):
            yield task.folder, missing
