"""The counts of a run, the share of its budget that they use up, and the plan that follows from it.

Batch size, row length, learning rate and masking rate of a step are functions of that share.
"""

from dataclasses import asdict, dataclass
from typing import Any

from maskwright.data.rows import DataPosition
from maskwright.errors import CheckpointError
from maskwright.train.config import TrainConfig


@dataclass(frozen=True)
class TrainState:
    """Counts since the beginning of the run, over all resumptions.

    Attributes:
        step: optimizer steps done.
        tokens: tokens seen, without padding.
        seconds: wall-clock time of training.
        startup_seconds: the part of `seconds` in the first step of each shape (compiling).
        validations: validations done.
        skipped_steps: steps whose loss or gradient was not finite.
        skipped_in_a_row: such steps since the last good one.
        position: the next row.
        repeated_startup_seconds: the part of `startup_seconds` after a resumption.
    """

    position: DataPosition
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    startup_seconds: float = 0.0
    validations: int = 0
    skipped_steps: int = 0
    skipped_in_a_row: int = 0
    repeated_startup_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainState":
        """Read the values of `to_json`; missing counts are 0.

        Raises:
            CheckpointError: the values are not those of `to_json`.
        """
        try:
            position = DataPosition(**values["position"])
            return cls(**{**values, "position": position})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"the checkpoint's counts cannot be read: {error}") from None

    def progress(self, config: TrainConfig) -> float:
        """Return the used share of the budget, 0..1; of several budgets the largest share."""
        return min(max(self._shares(config).values(), default=0.0), 1.0)

    def find_spent(self, config: TrainConfig) -> str | None:
        """Return the name of a budget of `config` that is used up, or None."""
        spent = (name for name, share in self._shares(config).items() if share >= 1)
        return next(spent, None)

    def _shares(self, config: TrainConfig) -> dict[str, float]:
        assert config.max_epochs is None, "epochs are not counted in tokens: call count_epochs"
        return config.used_shares(
            self.step,
            self.tokens,
            self.seconds,
            self.startup_seconds,
            self.repeated_startup_seconds,
        )

    def validations_due(self, config: TrainConfig) -> int:
        """Return the number of validations that are due at the used share of the budget."""
        return int(self.progress(config) * config.num_validations + 1e-9)
