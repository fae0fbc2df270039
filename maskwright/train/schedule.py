"""The schedules of a run: what each step has, as a function of its progress."""

import math
from dataclasses import dataclass

from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.loader import StepRequest
from maskwright.errors import ConfigError
from maskwright.optim.config import OptimConfig, learning_rate_scale
from maskwright.train.config import TrainConfig


@dataclass(frozen=True)
class StepPlan:
    """One step: its batch and the factor on its learning rates."""

    request: StepRequest
    learning_rate_scale: float


@dataclass(frozen=True)
class Schedule:
    """All schedules of a run.

    Attributes:
        vocab_size: the tokens of the model's vocabulary.
        num_ranks: the ranks that share a step.
    """

    train: TrainConfig
    data: DataConfig
    masking: MaskingConfig
    optim: OptimConfig
    vocab_size: int
    num_ranks: int = 1

    def __post_init__(self) -> None:
        too_long = f"is longer than data.max_seq_length = {self.data.max_seq_length}"
        longest = max(self.train.seq_lengths(self.data.max_seq_length))
        if longest > self.data.max_seq_length:
            remedy = f"Set data.max_seq_length to {longest}."
            stages = list(self.train.seq_length_schedule)
            raise ConfigError("train.seq_length_schedule", stages, too_long, remedy)
        stages = (*self.train.batch_tokens_schedule, *self.train.seq_length_schedule)
        for start in (0.0, *(float(stage.partition(":")[0]) for stage in stages)):
            tokens = self.train.batch_tokens_at(start)
            length = self.train.seq_length_at(start, self.data.max_seq_length)
            if tokens < length:
                name = "batch_tokens" + "_schedule" * bool(self.train.batch_tokens_schedule)
                rule = f"is less than one row of {length} tokens"
                raise ConfigError(f"train.{name}", tokens, rule, f"Set it to {length} or more.")
        valid = self.train.valid_seq_length
        if valid is not None and valid > self.data.max_seq_length:
            raise ConfigError("train.valid_seq_length", valid, too_long, "Remove it.")

    def step_at(self, progress: float, step: float = math.inf) -> StepPlan:
        """Return the plan of the step at `progress` (0..1), before which there were `step` steps.

        Infinitely many: a step long after the first ones.
        """
        length = self.train.seq_length_at(progress, self.data.max_seq_length)
        num_rows = self.train.batch_tokens_at(progress) // length
        micro_rows = self.train.even_rows_at(progress, self.data.max_seq_length, self.num_ranks)
        limit = self.train.micro_batch_tokens
        if isinstance(limit, int):  # a GPU's `auto` is a number by now; a CPU's is no limit
            num_parts = math.ceil(micro_rows / max(1, limit // length))
            micro_rows = math.ceil(micro_rows / num_parts)
        request = StepRequest(
            row_length=length,
            num_rows=num_rows,
            micro_batch_rows=micro_rows,
            mask_rate=self.masking.rate_at(progress),
            num_candidates=self._count_candidates(progress, step),
        )
        return StepPlan(request, learning_rate_scale(self.optim, progress))

    def _count_candidates(self, progress: float, step: float) -> int:
        """Return the number of candidates of a step; 0: the whole vocabulary.

        A tied embedding that was never a candidate is moved by its inputs alone, and AdamW makes
        such updates as large as any: within a few steps at the full rate these tokens take most of
        the probability. So after the warm-up no step has candidates before half of the candidates
        of all steps, those that are drawn, are as many as the tokens of the vocabulary.
        """
        count = self.train.num_candidates_at(progress)
        num_drawn, warmed_up = (step + 1) * count / 2, progress >= self.optim.warmup_share
        return 0 if warmed_up and num_drawn < self.vocab_size else count
