"""What a user can choose about fine-tuning."""

from dataclasses import dataclass, replace
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError
from maskwright.finetuning.metrics import Metric
from maskwright.model.config import Pooling, ProblemType
from maskwright.train.config import Precision

Task = Literal["classification", "multilabel", "regression", "tokens"]

PROBLEMS: dict[Task, ProblemType] = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
    "tokens": "single_label_classification",
}

# A small set of examples needs more passes than a large one (Mosbach et al., "On the Stability of
# Fine-tuning BERT", 2021), a wide encoder a lower rate than a narrow one: at the width of ELECTRA's
# base model this is the rate that Clark et al. (2020) fine-tuned it with. There lower layers want
# lower rates; in a narrow encoder that cost accuracy (docs/experiments.md).
_STEPS, _FEWEST_EPOCHS, _MOST_EPOCHS = 1000, 2.0, 20.0
_NARROW, _RATE, _DECAY = 256, 1e-3, 0.9


@dataclass(frozen=True)
class FinetuneConfig:
    """Budget, rates and regularisation; the defaults suit encoders of some million parameters."""

    epochs: float | None = setting(
        None, "passes over the training examples, at most; none = 2 to 20, for some 1,000 steps"
    )
    batch_size: int = setting(32, "examples a step")
    learning_rate: float | None = setting(
        None,
        "peak rate of the head, that of the encoder decays by layer; none = by the model's width: "
        "0.001 up to 256, 0.0001 at 768",
    )
    layer_decay: float | None = setting(
        None,
        "factor on the rate from one layer to the one below it; none = 1 up to a width of 256, else"
        " 0.9",
    )
    warmup_share: float = setting(0.1, "share of the steps in which the rate rises")
    weight_decay: float = setting(0.01, "of AdamW, on matrices")
    dropout: float = setting(0.1, "in the encoder and before the output")
    grad_clip: float = setting(1.0, "gradients are scaled down to this norm; 0: never")
    pooling: Pooling | None = setting(
        None, "the vector of a text; none = mean where the family leaves the choice, else its own"
    )
    max_length: int | None = setting(None, "tokens of an input; none = what the model takes")
    class_weights: bool = setting(False, "weight labels so that all count alike")
    metric: Metric | None = setting(None, "what decides which weights are kept; none = the task's")
    evaluations_an_epoch: float = setting(2.0, "scores on the validation examples, each epoch")
    patience: int = setting(4, "scores without a better one that end the training; 0: never")
    seeds: int = setting(1, "runs; they differ in the head, the order and the dropout")
    first_seed: int = setting(0, "the seed of the first run")
    precision: Precision = setting("auto", "bf16 autocast; auto: only where hardware has it")
    device: str = setting("auto", "cpu, cuda, cuda:1, mps; auto: a GPU if there is one")

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "evaluations_an_epoch"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(name, value, "must be above 0")
        for name in ("batch_size", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        for name in ("weight_decay", "grad_clip", "patience", "first_seed"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must not be negative")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("layer_decay", self.layer_decay, rule, "1 is one rate for all.")
        for name in ("warmup_share", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 0 and below 1")
        if self.max_length is not None and self.max_length < 8:
            raise ConfigError("max_length", self.max_length, "must be at least 8")

    def find_length(self, longest: int) -> int:
        """How many tokens of an input are read by a model that takes `longest`.

        Raises:
            ConfigError: more are asked for.
        """
        if self.max_length is not None and self.max_length > longest:
            rule = f"is more than the {longest} tokens that the model takes"
            raise ConfigError("max_length", self.max_length, rule, "Leave it out.")
        return self.max_length or longest

    def settle(self, num_examples: int, width: int) -> "FinetuneConfig":
        """The same with what depends on the number of training examples and the model's width."""
        epochs, rate, decay = self.epochs, self.learning_rate, self.layer_decay
        if epochs is None:
            passes = _STEPS * self.batch_size / num_examples
            epochs = round(min(max(passes, _FEWEST_EPOCHS), _MOST_EPOCHS), 1)
        if rate is None:
            rate = float(f"{_RATE * min(1, _NARROW / width) ** 2:.1g}")
        if decay is None:
            decay = 1.0 if width <= _NARROW else _DECAY
        return replace(self, epochs=epochs, learning_rate=rate, layer_decay=decay)
