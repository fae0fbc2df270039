"""The export targets and what they return.

To add a target, write a function of a new folder and a `Source` (see `classifier_source`), and
register it in `TARGETS`. The command line imports this module, which does not import torch.
"""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from maskwright.extras import import_extra

if TYPE_CHECKING:
    from maskwright.interop.comparison import OutputComparison


class Target(NamedTuple):
    """An export target: ``module:name`` of the function that writes a `Source` to a new folder,
    loads it with the library and returns what it found (`Written`), and the packages whose versions
    are recorded; the first one computes the comparison.
    """

    function: str
    packages: tuple[str, ...]


_ONNX = ("onnxruntime", "torch")
_TRANSFORMERS = "maskwright.interop.transformers"
TARGETS = {
    "gguf": Target("maskwright.interop.gguf:write", ("llama-cpp-python", "gguf", "torch")),
    "hf": Target(f"{_TRANSFORMERS}:write", ("transformers", "torch")),
    "onnx": Target("maskwright.interop.onnx:write", _ONNX),
    "onnx-int8": Target("maskwright.interop.onnx_int8:write", _ONNX),
    "openvino": Target("maskwright.interop.onnx:write_openvino", ("openvino", "onnx", "torch")),
    "sentence-transformers": Target(
        f"{_TRANSFORMERS}:write_vectors", ("sentence-transformers", "transformers", "torch")
    ),
    "transformers-js": Target("maskwright.interop.onnx:write_page", _ONNX),
}
# Of vectors; and of vectors if a model was made for them, else of logits.
VECTOR_TARGETS, EITHER_TARGETS = ("gguf", "sentence-transformers"), ("onnx", "openvino")


class Int8Options(NamedTuple):
    """Settings of an export to int8."""

    calibrate: str | None = None  # the text that fixes the ranges of activations; None: dynamic
    max_loss: float = 0.01  # of the score


INT8_DEFAULTS = Int8Options()


@dataclass(frozen=True)
class Int8Scores:
    """Scores, speed and size in fp32 and in int8, as measured on this machine.

    Attributes:
        recipe: the quantization recipe in words.
        questions: the number of predictions with a noun.
        metric: the name of the scores.
        score_fp32, score_int8: the scores before and after quantization.
        agreement: the name of `same`, as part of a sentence.
        same: agreement of the predictions before and after: 1 if all are the same.
        milliseconds_fp32, milliseconds_int8: time of one batch, the median of interleaved runs.
        batch_rows, batch_slots: rows and tokens per row of that batch.
        bytes_fp32, bytes_int8: size of the graphs.
    """

    recipe: str
    questions: str
    metric: str
    score_fp32: float
    score_int8: float
    agreement: str
    same: float
    milliseconds_fp32: float
    milliseconds_int8: float
    batch_rows: int
    batch_slots: int
    bytes_fp32: int
    bytes_int8: int

    def describe(self) -> list[str]:
        """Return two lines, and a third if int8 is no smaller or no faster."""
        speed_up = self.milliseconds_fp32 / self.milliseconds_int8
        lines = [
            f"{self.questions}: {self.metric} {self.score_fp32:.4f} in fp32, "
            f"{self.score_int8:.4f} in int8; {self.agreement} {self.same:.1%} ({self.recipe})",
            f"{self.batch_rows} rows of {self.batch_slots} tokens: {self.milliseconds_fp32:.1f} ms "
            f"in fp32, {self.milliseconds_int8:.1f} ms in int8 ({speed_up:.2f} x) on this machine; "
            f"{self.bytes_fp32 / 1e6:.1f} MB in fp32, {self.bytes_int8 / 1e6:.1f} MB in int8",
        ]
        failures = ["smaller"] * (self.bytes_int8 >= self.bytes_fp32)
        failures += ["faster on this machine"] * (self.milliseconds_int8 >= self.milliseconds_fp32)
        if failures:
            lines.append(
                f"int8 is no {' and no '.join(failures)} than fp32 for this model. Export it to "
                "onnx instead, or measure it on the machine where it will run."
            )
        return lines


class Written(NamedTuple):
    """The result of a target: the comparison, int8 scores if any, and further lines to print."""

    comparison: "OutputComparison"
    int8: Int8Scores | None = None
    notes: tuple[str, ...] = ()


def import_library(module: str, extra: str, needed_by: str) -> Any:
    """Import `module` without its warnings; raises as `import_extra` does."""
    with quiet():
        return import_extra(module, extra, needed_by)


@contextmanager
def quiet() -> Generator[None]:
    """Suppress warnings and log records below ERROR, because the results are checked anyway."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextmanager
def quiet_transformers(transformers: Any) -> Generator[None]:
    """Do the same as `quiet`, and suppress the progress bars of transformers."""
    bars = transformers.utils.logging
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        if had_bars:
            bars.enable_progress_bar()
