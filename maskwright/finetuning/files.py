"""Where a task's examples are, and how they lie in their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maskwright.finetuning.config import Task
from maskwright.finetuning.metrics import Metric
from maskwright.finetuning.tables import Column


@dataclass(frozen=True, kw_only=True)
class ExampleFiles:
    """Files of examples.

    Attributes:
        valid: to choose weights by; None: `valid_share` of the training examples, chosen by text.
        test: to score the chosen weights on, once; None: there is none.
        columns: what each is for -> its name or position; of token tasks ``word`` and ``tag``.
        has_header: whether tables begin with names; None: if any column is called by name.
    """

    train: Path
    valid: Path | None = None
    test: Path | None = None
    columns: Mapping[str, Column] = field(default_factory=dict[str, Column])
    has_header: bool | None = None
    valid_share: float = 0.1


@dataclass(frozen=True, kw_only=True)
class TaskFiles(ExampleFiles):
    """Labelled examples.

    Attributes:
        metrics: reported before the task's own; the first decides, unless the configuration does.
        skips_short: whether rows of tables with too few columns are left out and counted, since
            GLUE's own files have some; else they are an error.
    """

    task: Task
    metrics: tuple[Metric, ...] = ()
    skips_short: bool = False
