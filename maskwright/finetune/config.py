"""What a user can choose about fine-tuning."""

from dataclasses import dataclass
from typing import Literal

from maskwright.config import setting
from maskwright.errors import ConfigError
from maskwright.finetune.metrics import Metric
from maskwright.model.head_config import Pooling, Problem
from maskwright.train.config import Precision

Task = Literal["classification", "multilabel", "regression", "tokens"]

PROBLEMS: dict[Task, Problem] = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
    "tokens": "single_label_classification",
}


@dataclass(frozen=True)
class FinetuneConfig:
    """Budget, rates and regularisation; the defaults suit encoders of some million parameters."""

    epochs: float = setting(5.0, "passes over the training examples, at most")
    batch_size: int = setting(32, "examples a step")
    learning_rate: float = setting(
        3e-4, "peak rate of the head; that of the encoder decays by layer"
    )
    layer_decay: float = setting(0.9, "factor on the rate from one layer to the one below it")
    warmup_share: float = setting(0.1, "share of the steps in which the rate rises")
    weight_decay: float = setting(0.01, "of AdamW, on matrices")
    dropout: float = setting(0.1, "in the encoder and before the output")
    grad_clip: float = setting(1.0, "gradients are scaled down to this norm; 0: never")
    pooling: Pooling = setting("mean", "the vector of a text, where the family leaves the choice")
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
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "must be above 0")
        for name in ("batch_size", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        for name in ("weight_decay", "grad_clip", "patience", "first_seed"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must not be negative")
        if not 0 < self.layer_decay <= 1:
            rule = "must be above 0 and at most 1"
            raise ConfigError("layer_decay", self.layer_decay, rule, "1 is one rate for all.")
        for name in ("warmup_share", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 0 and below 1")
        if self.max_length is not None and self.max_length < 8:
            raise ConfigError("max_length", self.max_length, "must be at least 8")
