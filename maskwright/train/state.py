"""Where a run stands, beside its tensors; and how much of its budget that is."""

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
        """What `to_json` gave; counts that are not there are 0.

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
        """The share of the budget used up, 0..1; of several budgets the one that ends first.

        Minutes of the budget that went into compiling are lost for learning; progress counts the
        others, so that no schedule jumps while a graph is compiled. A resumed run compiles again;
        the budget does not pay for that, or a few interruptions would use up a short one.
        """
        return min(max(self._shares(config).values(), default=0.0), 1.0)

    def find_spent(self, config: TrainConfig) -> str | None:
        """Return the name of a budget of `config` that is used up, or None."""
        spent = (name for name, share in self._shares(config).items() if share >= 1)
        return next(spent, None)

    def _shares(self, config: TrainConfig) -> dict[str, float]:
        """Return how much of each budget is used up, which may be more than 1."""
        assert config.max_epochs is None, "an epoch's tokens are not known here: count_epochs first"
        shares: dict[str, float] = {}
        if config.max_steps:
            shares["max_steps"] = self.step / config.max_steps
        if config.max_tokens:
            shares["max_tokens"] = self.tokens / config.max_tokens
        if config.max_minutes:
            first_startup = self.startup_seconds - self.repeated_startup_seconds
            usable = 60 * config.max_minutes - first_startup
            used = self.seconds - self.startup_seconds
            shares["max_minutes"] = used / usable if usable > 0 else 1.0
        return shares

    def validations_due(self, config: TrainConfig) -> int:
        """How many validations belong to the share of the budget used up."""
        return int(self.progress(config) * config.num_validations + 1e-9)
