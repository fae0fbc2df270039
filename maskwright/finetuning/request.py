"""What a run of fine-tuning is asked for: the files of examples, the model, the configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maskwright.finetuning.column_roles import Column
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.metrics import Metric
from maskwright.model_folder.folder import MODEL


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
        inner = (MODEL, "0_Transformer")  # in a run directory; in one of sentence-transformers
        return (self.model.parent if self.model.name in inner else self.model).name
