"""The configuration of a training run."""

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from maskwright.config import check_numbers, setting
from maskwright.data.config import MIN_ROW_LENGTH
from maskwright.errors import ConfigError

Precision = Literal["auto", "fp32", "bf16"]
FixedPrecision = Literal["fp32", "bf16"]  # the same on every machine, as a record needs it
MILESTONE = "chck_"  # the prefix of the folders of `TrainConfig.list_milestones`
TRACKER_NAMES = ("tensorboard", "wandb", "mlflow", "trackio")
BUDGETS = ("max_minutes", "max_steps", "max_tokens", "max_epochs")
_WORDS = re.compile(r"([1-9]\d{0,8})([KM]?)")
_UNITS = {"": 1, "K": 1000, "M": 1_000_000}


@dataclass(frozen=True)
class TrainConfig:
    """Budget, batches, curricula, precision, and the intervals of logs and checkpoints."""

    max_minutes: float | None = setting(
        None, "budget in minutes of wall-clock time, including compiling, except on resume"
    )
    max_steps: int | None = setting(None, "budget in optimizer steps")
    max_tokens: int | None = setting(None, "budget in tokens, without padding")
    max_epochs: float | None = setting(
        None,
        "budget in passes over the text; each change of the row length begins a new order, so some "
        "text comes twice and some not at all",
    )
    batch_tokens: int = setting(2048, "tokens in a step, padding included: rows times row length")
    batch_tokens_schedule: tuple[str, ...] = setting(
        (), "batch size curriculum, as progress:tokens, e.g. 0:2048,0.5:4096"
    )
    seq_length_schedule: tuple[str, ...] = setting(
        (), "row length curriculum, as progress:length, e.g. 0:64,0.7:128"
    )
    num_candidates: int = setting(
        0,
        "number of candidate tokens for predictions in training until candidate_share of the "
        "budget: faster, but losses logged until then are estimates; 0: the whole vocabulary",
    )
    candidate_share: float = setting(0.7, "share of the budget with num_candidates")
    micro_batch_tokens: int | Literal["auto"] | None = setting(
        "auto",
        "tokens, padding included, in a forward pass of a process; auto: as many as fit on a GPU, "
        "on a CPU the whole step; none = the whole step",
    )
    device_memory: float | None = setting(
        None,
        "GB of the GPU that a process may use; with --dry-run, the memory of a GPU to plan for; "
        "none = all of it",
    )
    grad_clip: float = setting(1.0, "maximum norm of the gradients; 0: no clipping")
    ema_decay: float | None = setting(
        None, "validate and save an average of the weights with this decay, e.g. 0.999"
    )
    precision: Precision = setting(
        "auto", "bf16: autocast; auto: bf16 if the hardware computes in it"
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "torch.compile; auto: if the run is long enough to save time"
    )
    capture: Literal["auto", "on", "off"] = setting(
        "auto", "record steps as CUDA graphs, which a GPU need not wait for; auto: on a GPU"
    )
    parallel: Literal["ddp", "fsdp", "hsdp"] = setting(
        "ddp",
        "data parallelism of several processes; fsdp also shards the weights, hsdp by machine",
    )
    activation_checkpointing: bool = setting(
        False, "recompute the activations of blocks in the backward pass: less memory, slower"
    )
    max_skipped_steps: int = setting(
        5, "end the run after N skipped steps in a row: loss or gradient not finite"
    )
    device: str = setting("auto", "cpu, cuda, cuda:1, mps; auto: a GPU if there is one")
    log_every_steps: int = setting(20, "steps between two lines of training metrics")
    num_validations: int = setting(10, "validations, evenly over the budget, the last at its end")
    valid_seq_length: int | None = setting(
        None, "row length of validations; none = data.max_seq_length"
    )
    valid_tokens: int = setting(32768, "tokens, padding included, of a validation during training")
    final_valid_tokens: int = setting(262144, "tokens, padding included, of the last validation")
    report: bool = setting(True, "write report.html when the run ends; needs maskwright[plots]")
    trackers: tuple[str, ...] = setting(
        (),
        "send the numbers of the run to tensorboard, wandb, mlflow, trackio; none = to "
        "TensorBoard's files if tensorboard is installed",
    )
    checkpoint_every_minutes: float = setting(10.0, "minutes between two checkpoints")
    keep_checkpoints: int = setting(2, "number of checkpoints to keep")
    checkpoint_words: tuple[str, ...] = setting(
        (), "save the model as chck_N after N words of text, and keep it, e.g. 1M,2M,10M"
    )

    def __post_init__(self) -> None:
        check_numbers(self, *BUDGETS, "checkpoint_every_minutes", "device_memory", above=0)
        if self.micro_batch_tokens != "auto":
            check_numbers(self, "micro_batch_tokens", above=0)
        for name in self.trackers:
            if name not in TRACKER_NAMES:
                rule = f"is not one of {', '.join(TRACKER_NAMES)}"
                raise ConfigError("trackers", name, rule)
        counts = ("batch_tokens", "log_every_steps", "num_validations", "keep_checkpoints")
        counts += ("max_skipped_steps", "valid_tokens", "final_valid_tokens")
        check_numbers(self, *counts, at_least=1)
        check_numbers(self, "valid_seq_length", at_least=MIN_ROW_LENGTH, remedy="128 is usual.")
        check_numbers(self, "ema_decay", above=0, below=1, remedy="Try 0.999.")
        check_numbers(self, "grad_clip", "num_candidates", at_least=0)
        check_numbers(self, "candidate_share", at_least=0, at_most=1, remedy="Try 0.7.")
        parse_schedule("batch_tokens_schedule", self.batch_tokens_schedule, 1)
        self.list_milestones()
        if min(self.seq_lengths(MIN_ROW_LENGTH)) < MIN_ROW_LENGTH:
            stages = list(self.seq_length_schedule)
            rule = f"holds a length below {MIN_ROW_LENGTH}"
            raise ConfigError("seq_length_schedule", stages, rule, "Write 0:64,0.7:128.")

    def count_epochs(self, num_tokens: float) -> "TrainConfig":
        """Return the configuration with its budget of epochs converted to tokens.

        Args:
            num_tokens: tokens of the text; infinite if unknown.
        """
        if self.max_epochs is None:
            return self
        tokens = min(self.max_epochs * num_tokens, self.max_tokens or math.inf)
        whole = max(1, round(tokens)) if tokens < math.inf else None
        return replace(self, max_tokens=whole, max_epochs=None)

    def list_milestones(self) -> dict[str, int]:
        """Return the numbers of words after which the model is saved; raise ConfigError.

        The keys are folder names, such as ``chck_1M``: the revisions of a BabyLM submission.
        """
        milestones: dict[str, int] = {}
        for count in self.checkpoint_words:
            found = _WORDS.fullmatch(count)
            if found is None:
                rule = f"holds {count!r}, which is not a count of words"
                given = list(self.checkpoint_words)
                raise ConfigError("checkpoint_words", given, rule, "Write 500K,1M,2M.")
            milestones[f"{MILESTONE}{count}"] = int(found[1]) * _UNITS[found[2]]
        return milestones

    @property
    def most_minutes(self) -> float:
        """The budget in minutes; infinite if there is none."""
        return self.max_minutes or math.inf

    @property
    def most_tokens(self) -> float:
        """The tokens that the budgets of tokens and steps allow; infinite if there is none."""
        steps = self.max_steps or math.inf
        return min(self.max_tokens or math.inf, steps * self.mean_batch_tokens)

    def describe_budget(self) -> str:
        """Describe the budgets that are set."""
        values = {name: getattr(self, name) for name in BUDGETS}
        return " or ".join(f"{v:,} {name.removeprefix('max_')}" for name, v in values.items() if v)

    def estimate_seconds(self, step_seconds: float, epoch_tokens: float | None) -> float:
        """Return the duration of the run; infinite if it is unknown.

        Args:
            step_seconds: duration of a mean step.
            epoch_tokens: tokens of the text; None if unknown.
        """
        counted = self.count_epochs(epoch_tokens or math.inf)
        return min(
            60 * self.most_minutes, counted.most_tokens * step_seconds / self.mean_batch_tokens
        )

    def used_shares(
        self,
        step: int,
        tokens: int,
        seconds: float,
        startup_seconds: float = 0.0,
        repeated_startup_seconds: float = 0.0,
    ) -> dict[str, float]:
        """Return the used share of each budget except epochs; it may be more than 1.

        Compiling takes minutes from the budget, and the share is that of the remaining minutes, so
        no schedule jumps while a graph is compiled. A resumed run compiles again; these minutes are
        not taken from the budget, because a few interruptions would use up a short one.
        """
        shares: dict[str, float] = {}
        if self.max_steps:
            shares["max_steps"] = step / self.max_steps
        if self.max_tokens:
            shares["max_tokens"] = tokens / self.max_tokens
        if self.max_minutes:
            usable = 60 * self.max_minutes - (startup_seconds - repeated_startup_seconds)
            used = seconds - startup_seconds
            shares["max_minutes"] = used / usable if usable > 0 else 1.0
        return shares

    def batch_tokens_at(self, progress: float) -> int:
        """Return the tokens of a step, padding included, at `progress` (0..1) of the budget."""
        return _stage_at(self._batch_stages(), progress)

    def even_rows_at(self, progress: float, max_seq_length: int, num_ranks: int = 1) -> int:
        """Return the rows of a micro-batch for which its shape stays while batches grow.

        It is the greatest common divisor of a rank's rows in all stages of the batch size, unless
        that is less than half of the smallest batch.
        """
        length = self.seq_length_at(progress, max_seq_length)
        stages = [tokens for _, tokens in self._batch_stages()] + [self.batch_tokens_at(progress)]
        *rows, now = (max(1, math.ceil(tokens // length / num_ranks)) for tokens in stages)
        common = math.gcd(*rows)
        return common if 2 * common >= min(rows) else now

    def _batch_stages(self) -> list[tuple[float, int]]:
        stages = self.batch_tokens_schedule
        return parse_schedule("batch_tokens_schedule", stages, self.batch_tokens)

    def num_candidates_at(self, progress: float) -> int:
        """Return the number of candidate tokens of a prediction; 0: the whole vocabulary."""
        return self.num_candidates if progress < self.candidate_share else 0

    @property
    def most_batch_tokens(self) -> int:
        """The tokens, padding included, of the largest step."""
        return max(tokens for _, tokens in self._batch_stages())

    @property
    def mean_batch_tokens(self) -> float:
        """The mean number of tokens of a step, padding included."""
        return sum(share * tokens for share, tokens in _share_stages(self._batch_stages()))

    def seq_length_at(self, progress: float, max_seq_length: int) -> int:
        """Return the row length at `progress` (0..1) of the budget."""
        stages = parse_schedule("seq_length_schedule", self.seq_length_schedule, max_seq_length)
        return _stage_at(stages, progress)

    def seq_lengths(self, max_seq_length: int) -> list[int]:
        """Return all row lengths of the run, in order."""
        return [length for _, length in self.share_lengths(max_seq_length)]

    def share_lengths(self, max_seq_length: int) -> list[tuple[float, int]]:
        """Return all row lengths of the run, in order, each after its share of the budget."""
        stages = parse_schedule("seq_length_schedule", self.seq_length_schedule, max_seq_length)
        return _share_stages(stages)


def parse_schedule(name: str, stages: tuple[str, ...], default: int) -> list[tuple[float, int]]:
    """Parse ``("0:64", "0.7:128")`` to [(0.0, 64), (0.7, 128)]; without stages return `default`.

    Raises:
        ConfigError: a stage that is not progress:count, or stages out of order.
    """
    parsed: list[tuple[float, int]] = []
    for stage in stages or (f"0:{default}",):
        start, _, count = stage.partition(":")
        try:
            parsed.append((float(start), int(count)))
        except ValueError:
            rule = f"holds {stage!r}, which is not progress:count"
            raise ConfigError(name, list(stages), rule, "Write 0:64,0.7:128.") from None
    starts = [start for start, _ in parsed]
    if starts[0] != 0 or starts != sorted(set(starts)) or not starts[-1] < 1:
        raise ConfigError(name, list(stages), "must rise from 0 to below 1", "Write 0:64,0.7:128.")
    if min(count for _, count in parsed) < 1:
        raise ConfigError(name, list(stages), "holds a count below 1")
    return parsed


def _share_stages(stages: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Replace the beginning of each stage by its share of the budget."""
    ends = [*(start for start, _ in stages[1:]), 1.0]
    return [(end - start, count) for (start, count), end in zip(stages, ends, strict=True)]


def _stage_at(stages: list[tuple[float, int]], progress: float) -> int:
    return max(stage for stage in stages if stage[0] <= max(progress, 0.0))[1]
