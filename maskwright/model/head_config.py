"""What stands on an encoder that labels texts or tokens."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["text", "token"]
Pooling = Literal["cls", "mean", "late"]
HeadActivation = Literal["tanh", "gelu", "gelu_pytorch_tanh", "relu", "silu"]
# In the words of transformers: one label of several, any number of them, or a number.
Problem = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True)
class HeadConfig:
    """The head of a classifier; published families differ in what stands before its output.

    Attributes:
        level: whether texts or single tokens are labelled.
        num_labels: K; 1 for a number.
        pooling: what a text is labelled by: the vector of its first token, the mean of all, or
            (late) the mean of the logits of all.
        activation: of the dense layer before the output; None = there is no such layer.
        bias: whether that layer has one.
        norm: whether a norm follows it.
        dropout: before the output.
    """

    level: Level
    num_labels: int
    pooling: Pooling = "cls"
    activation: HeadActivation | None = None
    bias: bool = True
    norm: bool = False
    dropout: float = 0.1
