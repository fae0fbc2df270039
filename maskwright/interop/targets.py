"""The export targets: the module of each, what a target is, and what it may ask of a model.

To add a target, write a module with a `Target` named ``TARGET`` and register it in `TARGETS`. A
command line reads this module before torch is imported, so torch appears in annotations only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from maskwright.interop.comparison import Comparison, Compute
    from maskwright.model.classifier import Classifier
    from maskwright.model.masked_lm import MaskedLanguageModel
    from maskwright.model_folder.card import HubMetadata
    from maskwright.model_folder.native.family import Family

TARGETS = {
    "hf": "maskwright.interop.transformers",
    "onnx": "maskwright.interop.onnx",
    "onnx-int8": "maskwright.interop.onnx_int8",
    "sentence-transformers": "maskwright.interop.sentence_transformers",
}


@dataclass(frozen=True)
class Int8Scores:
    """Scores, speed and size in fp32 and in int8, as measured on this machine.

    Attributes:
        recipe: how it was quantized.
        questions: the number of questions with a noun.
        metric: the name of the scores.
        score_fp32, score_int8: before and after.
        agreement: the name of `same`, as part of a sentence.
        same: 1 if all answers are the same before and after.
        milliseconds_fp32, milliseconds_int8: of one batch, median of interleaved repetitions.
        batch_rows, batch_slots: of that batch.
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
            f"{self.batch_rows} rows of {self.batch_slots}: {self.milliseconds_fp32:.1f} ms in "
            f"fp32, {self.milliseconds_int8:.1f} ms in int8 ({speed_up:.2f} x) on this machine; "
            f"{self.bytes_fp32 / 1e6:.1f} MB, then {self.bytes_int8 / 1e6:.1f} MB",
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
    """What a target wrote: the comparison, int8 scores if any, and further lines for the reader."""

    comparison: "Comparison"
    int8: Int8Scores | None = None
    notes: tuple[str, ...] = ()


class Judge(Protocol):
    """Questions with known answers, on which a quantized graph is compared to the fp32 graph.

    Attributes:
        questions: their number with a noun, such as ``2,415 masks of held-out text``.
        metric: the name of what `score` computes.
        agreement: what `agree` computes, as part of a sentence.
    """

    @property
    def questions(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def agreement(self) -> str: ...

    def answer(self, graph: "Compute") -> Any:
        """Return the answers of a graph to all questions."""
        ...

    def agree(self, before: Any, after: Any) -> float:
        """Return how far two graphs give the same answers: 1 if all are equal."""
        ...

    def score(self, answers: Any) -> float:
        """Return the metric of the answers."""
        ...

    def timed_batch(self) -> "Sequence[Tensor]":
        """Return the longest inputs, on which graphs are timed; the first tensor is [B, L]."""
        ...


class Source(Protocol):
    """A model to export, with texts on which the export is compared to it.

    Attributes:
        model: the model, on the CPU.
        texts_from: where the texts of the comparison come from.
        max_length: the longest input in tokens; longer ones are cut.
        metadata: what the hub is told about the model.
        auto_class: the class of transformers that loads its folder.
        has_unused_head: True if the folder holds a head that `auto_class` does not load.
        output_shape: the dimensions of the logits, in words.
        example_text: a text for the example in a card.
    """

    @property
    def model(self) -> "MaskedLanguageModel | Classifier": ...
    @property
    def texts_from(self) -> str: ...
    @property
    def max_length(self) -> int: ...
    @property
    def metadata(self) -> "HubMetadata": ...
    @property
    def auto_class(self) -> str: ...
    @property
    def has_unused_head(self) -> bool: ...
    @property
    def output_shape(self) -> str: ...
    @property
    def example_text(self) -> str: ...

    def save(self, folder: Path) -> None:
        """Write the model folder with the model's own card."""
        ...

    def find_family(self) -> "tuple[Family | None, str]":
        """Return the family of transformers that computes the model, or why there is none."""
        ...

    def check_ids(self, tokenizer: Any) -> None:
        """Raise ExportError unless a tokenizer of transformers encodes the texts as ours does."""
        ...

    def compare(self, compute: "Compute") -> "Comparison":
        """Compare the logits of `compute` to those of the model on all texts."""
        ...

    def judge(self) -> Judge:
        """Return the judge of a quantized graph; raise InputError if it has no question."""
        ...


@dataclass(frozen=True)
class Target:
    """An export target.

    Attributes:
        packages: packages whose versions are recorded; the first one computes the comparison.
        write: writes a model into a new folder, loads it from there with the library, and compares.
    """

    packages: tuple[str, ...]
    write: Callable[[Path, Source], Written]
