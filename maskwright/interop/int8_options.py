"""The settings of an export to int8."""

from typing import NamedTuple


class Int8Options(NamedTuple):
    """Settings of an export to int8.

    Attributes:
        calibrate: the text that fixes the ranges of activations; None: the graph finds the range of
            each token when it runs.
        max_loss: the largest loss of the score.
    """

    calibrate: str | None = None
    max_loss: float = 0.01


INT8_DEFAULTS = Int8Options()
