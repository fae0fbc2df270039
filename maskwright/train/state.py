"""The counts of a run, and how much of its budget they use up."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from maskwright.data.rows import DataPosition
from maskwright.errors import CheckpointError
from maskwright.train.config import TrainConfig


@dataclass(frozen=True)
class TrainState:
    """Counts since the beginning of the run, over all resumptions.

    Attributes:
        step: optimizer steps done.
        tokens: tokens seen, padding not counted.
        seconds: wall-clock spent in training.
        startup_seconds: the part of it that went into first steps of a shape (compiling).
        validations: validations done.
        skipped_steps: steps whose loss or gradient was not finite.
        skipped_in_a_row: such steps since the last good one.
        position: the next row.
        repeated_startup_seconds: the part of `startup_seconds` that processes which resumed the run
            took.
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
        """Read what `to_json` returned; counts that are missing are 0.

        Raises:
            CheckpointError: anything else.
        """
        try:
            position = DataPosition(**values["position"])
            state = cls(**{**values, "position": position})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"the checkpoint's counts cannot be read: {error}") from None
        for part in (state, position):
            for count in fields(part):
                value = getattr(part, count.name)
                kinds = (int, float) if count.name.endswith("seconds") else int
                is_number = isinstance(value, kinds)
                if value is not position and not (is_number and 0 <= value < 2**63):
                    raise CheckpointError(f"the checkpoint's {count.name} = {value} is no count")
        return state

    def progress(self, config: TrainConfig) -> float:
        """Return the share of the budget used up, 0..1: of several, that of the first to end."""
        return min(max(self._shares(config).values(), default=0.0), 1.0)

    def find_spent(self, config: TrainConfig) -> str | None:
        """Return the name of a budget of `config` that is used up, or None."""
        spent = (name for name, share in self._shares(config).items() if share >= 1)
        return next(spent, None)

    def _shares(self, config: TrainConfig) -> dict[str, float]:
        assert config.max_epochs is None, "an epoch's tokens are not known here: count_epochs first"
        return config.used_shares(
            self.step,
            self.tokens,
            self.seconds,
            self.startup_seconds,
            self.repeated_startup_seconds,
        )

    def validations_due(self, config: TrainConfig) -> int:
        """Return how many validations belong to the share of the budget used up."""
        return int(self.progress(config) * config.num_validations + 1e-9)
