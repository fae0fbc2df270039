"""The evaluation suites by name, and what each one states.

To add a suite, write a module with a `Suite` called ``SUITE``, and name it in `SUITES`. The module
is imported when the suite is used, so that ``--help`` lists suites without importing torch.
"""

import importlib
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maskwright.data.config import DataConfig
from maskwright.errors import InputError, suggest
from maskwright.runs.evaluation_file import SuiteResult

if TYPE_CHECKING:
    from maskwright.evaluation.held_out_text import EvaluationText
    from maskwright.evaluation.minimal_pairs import MinimalPair
    from maskwright.inference.text_model import TextModel
    from maskwright.model.masked_lm import MaskedLanguageModel


@dataclass(frozen=True)
class SuiteEntry:
    """A line of the registry: the module of a suite, or ``MODULE:NAME``, and its line of help."""

    module: str
    help: str


SUITES = {
    "mlm": SuiteEntry(
        "maskwright.evaluation.suite_mlm",
        "masked language modeling on pinned masks: loss, perplexity, bits per character,\n"
        "accuracies, whole words, by frequency, calibration",
    ),
    "fill": SuiteEntry("maskwright.evaluation.suite_fill", "one masked token in each sentence"),
    "pll": SuiteEntry("maskwright.evaluation.suite_pll", "pseudo-perplexity of sentences"),
    "blimp": SuiteEntry(
        "maskwright.evaluation.suite_blimp",
        "minimal pairs (BLiMP, its supplement, EWoK): is the good sentence likelier?",
    ),
    "retrieval": SuiteEntry(
        "maskwright.evaluation.suite_retrieval:RETRIEVAL",
        "vectors find the answers of queries: --data DIR in the layout of BEIR",
    ),
    "sts": SuiteEntry(
        "maskwright.evaluation.suite_retrieval:STS",
        "vectors of pairs are as near as people say: --data TABLE",
    ),
}
# `finetuning.glue` has data and results of its own, so it cannot be combined with the suites above.
GLUE = "glue"
GLUE_HELP = "fine-tuning on every task of the benchmark that --data DIR holds; only alone"


@dataclass(frozen=True)
class Suite:
    """An evaluation suite.

    Attributes:
        needs: what it scores a model on: `Request.text`, `Request.pairs` or `Request.files`.
        full: the most token slots, sentences or pairs of each paradigm that it scores; None: all.
        fast: the same with ``--fast``.
        check: raises InputError, before any suite runs, if the request cannot be scored.
        score: scores the model; `mark_fast` records whether ``--fast`` left something out.
        headlines: the scores to show where there is little room, as ``SUITE/SCORE``.
    """

    name: str
    needs: Literal["text", "pairs", "files"]
    full: int | None
    fast: int
    check: "Callable[[Request], None]"
    score: "Callable[[Request], SuiteResult]"
    headlines: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """A model and the data to score it on.

    Attributes:
        rows: how the suite ``mlm`` cuts text into rows, as far as the model has positions.
        text: None if no requested suite needs text.
        pairs: minimal pairs and their name; None if no requested suite needs them.
        files: what --data names, for suites that read it themselves.
        is_fast: score less, for a first look.
        babylm: where the suite ``blimp`` writes what it chooses, with the metric of BabyLM's code.
    """

    model: "TextModel[MaskedLanguageModel]"
    rows: DataConfig
    text: "EvaluationText | None" = None
    pairs: "tuple[str, Sequence[MinimalPair]] | None" = None
    is_fast: bool = False
    babylm: Path | None = None
    files: Sequence[str] = ()

    @property
    def wraps(self) -> bool:
        """Return True if the model's inputs are [CLS] … [SEP]."""
        return len(self.model.wrap([])) > 0

    @property
    def room(self) -> int:
        """The number of tokens of a sentence that the model has positions for."""
        return self.model.longest - len(self.model.wrap([]))

    def need_text(self) -> "EvaluationText":
        """Return the text; raise InputError if there is none."""
        if self.text is None:
            raise InputError("the suite needs --data: a prepared folder, or text files")
        return self.text

    def need_pairs(self) -> "tuple[str, Sequence[MinimalPair]]":
        """Return the minimal pairs; raise InputError if there are none."""
        if self.pairs is None:
            raise InputError("the suite needs --blimp: a folder of minimal pairs")
        return self.pairs

    def find_size(self, suite: Suite) -> int:
        """Return the most slots, sentences, or pairs of each paradigm that a suite scores here."""
        full = sys.maxsize if suite.full is None else suite.full
        return suite.fast if self.is_fast else full

    def too_short(self, reason: str) -> InputError:
        """Return the error of a text that is too short for a suite."""
        name = self.need_text().data["name"]
        return InputError(f"{name} is too short: {reason}. Give more text.")


def mark_fast(result: SuiteResult, is_fast: bool) -> SuiteResult:
    """Record in the settings whether ``--fast`` left something out."""
    return replace(result, settings={**result.settings, "fast": is_fast})


def load_suite(name: str) -> Suite:
    """Import a suite of `SUITES`."""
    module, _, variable = SUITES[name].module.partition(":")
    return getattr(importlib.import_module(module), variable or "SUITE")


def find_headlines(suites: Iterable[str]) -> list[str]:
    """Return the headlines of suites by name."""
    return [name for suite in suites for name in load_suite(suite).headlines]


def parse_names(suite: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of suites, each once.

    Args:
        suite: names, or one text with names separated by commas.

    Raises:
        InputError: no name, one that does not exist, or ``glue`` with others.
    """
    given = suite.split(",") if isinstance(suite, str) else suite
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    valid = [*SUITES, GLUE]
    if not names:
        raise InputError(f"no suite given: choose from {', '.join(valid)}")
    if GLUE in names and len(names) > 1:
        raise InputError(
            "--suite glue cannot be combined with other suites. Run them in a command of their own."
        )
    for name in names:
        if name not in valid:
            raise suggest("suite", name, valid, f"choose from {', '.join(valid)}")
    return names


@contextmanager
def before_each_pass(model: "MaskedLanguageModel", call: Callable[[], None]) -> Generator[None]:
    """Call `call` before every pass through the model within this context."""

    def before(*_: object) -> None:
        call()

    handle = model.encoder.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()
