"""Finished seeds of a run in a checkpoint: what each scored, and the weights of the best one.

The checkpoint of the seed that ended last replaces the one before. A seed that was interrupted is
trained again from its beginning: its order, head and dropout are functions of its number.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from maskwright.errors import CheckpointError
from maskwright.finetuning.fit import Fitted
from maskwright.finetuning.scoring import is_better
from maskwright.model.classifier import Classifier
from maskwright.train.checkpoint import Checkpoint, find_newest, save_checkpoint


@dataclass
class FinishedSeeds:
    """The runs that are finished, in order; `folder` is None where nothing is kept."""

    folder: Path | None = None
    runs: list[Fitted] = field(default_factory=list[Fitted])
    checkpoint: Checkpoint | None = None

    def keep(self, run: Fitted, best: Classifier) -> None:
        """Add a run.

        Args:
            best: the classifier of the best run so far.
        """
        self.runs.append(run)
        if self.folder is not None:
            state = {"runs": [asdict(each) for each in self.runs]}
            save_checkpoint(self.folder, len(self.runs), best.state_dict(), state, keep=1)

    def fill(self, model: Classifier) -> None:
        """Fill a model with the weights of the best run; raise CheckpointError if that fails."""
        assert self.checkpoint is not None
        self.checkpoint.read_into(model.state_dict())


def read_finished(folder: Path, say: Callable[[str], None]) -> FinishedSeeds:
    """Return the seeds that a run has finished; of a damaged checkpoint none, and a line says so.

    Raises:
        CheckpointError: a whole checkpoint of something else.
    """
    checkpoint, complaints = find_newest(folder)
    for complaint in complaints:
        say(f"warning: {complaint}; its seeds are trained again")
    if checkpoint is None:
        return FinishedSeeds(folder)
    try:
        runs = [Fitted(**run) for run in checkpoint.state["runs"]]
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} holds no finished seeds ({error}). Remove it."
        ) from None
    return FinishedSeeds(folder, runs, checkpoint)


def find_best(runs: Sequence[Fitted], deciding: str) -> int:
    """Return the number of the best run; of equal ones the first."""
    best = 0
    for number, run in enumerate(runs):
        if is_better(deciding, run.scores, runs[best].scores):
            best = number
    return best
