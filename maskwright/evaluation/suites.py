"""The evaluation suites by name, and their interface.

To add a suite, write a module with a `Suite`, and add it to `SUITES`. The module is imported when
the suite is used, so that ``--help`` lists suites without importing torch.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from maskwright.data.config import DataConfig
from maskwright.errors import InputError, suggest
from maskwright.extras import load
from maskwright.files import hash_file
from maskwright.runs.evaluation_file import DataFacts, SuiteResult
from maskwright.train.config import FixedPrecision

if TYPE_CHECKING:
    from maskwright.evaluation.data import EvaluationText, MinimalPair
    from maskwright.inference.embed import Embedder
    from maskwright.inference.text_model import TextModel
    from maskwright.model.masked_lm import MaskedLanguageModel


# By name: the suite, which is imported when it is used, and its help text.
SUITES = {
    "mlm": (
        "maskwright.evaluation.suite_mlm:MLM",
        "masked language modeling on pinned masks: loss, perplexity, bits per character,\n"
        "accuracies, whole words, by frequency, calibration",
    ),
    "fill": ("maskwright.evaluation.suite_sentences:FILL", "one masked token in each sentence"),
    "pll": ("maskwright.evaluation.suite_sentences:PLL", "pseudo-perplexity of sentences"),
    "blimp": (
        "maskwright.evaluation.suite_blimp:BLIMP",
        "accuracy on minimal pairs (BLiMP, its supplement, EWoK)",
    ),
    "retrieval": (
        "maskwright.evaluation.suite_vectors:RETRIEVAL",
        "retrieval of documents by text vectors; --data DIR in the format of BEIR",
    ),
    "sts": (
        "maskwright.evaluation.suite_vectors:STS",
        "correlation of vector cosines with human similarity scores; --data TABLE",
    ),
    "labels": (
        "maskwright.evaluation.suite_labels:LABELS",
        "the answers of a fine-tuned model to new labeled examples; --data FILE",
    ),
}
# `finetuning.glue` uses other data and results, so it cannot be combined with the suites above.
GLUE_SUITE = "glue"
GLUE_HELP = "fine-tuning on every GLUE task in --data DIR; not combined with other suites"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """An evaluation suite.

    Attributes:
        needs: the data that it uses: `Request.text`, `Request.pairs` or `Request.files`; ``labels``
            are files for a fine-tuned model.
        full: the maximum token positions, sentences, or pairs of each paradigm; None: no limit.
        fast: the same with ``--fast``.
        check: raises InputError, before any suite runs, if the request cannot be scored.
        score: scores the model; `mark_fast` records whether ``--fast`` reduced the data.
        headlines: the most important scores, as ``SUITE/SCORE``.
    """

    name: str
    needs: Literal["text", "pairs", "files", "labels"]
    full: int | None = None
    fast: int = 0
    check: "Callable[[Request], object]"
    score: "Callable[[Request], SuiteResult]"
    headlines: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """A model and the data to score it on.

    Attributes:
        rows: the rows of the suite ``mlm``, up to the model's maximum length.
        text: the text to score; None if no requested suite needs text.
        pairs: minimal pairs and their name; None if no requested suite needs them.
        files: the values of --data, for suites that read it themselves.
        rerank: a model of ``finetune --task ranking`` that orders what ``retrieval`` finds.
        is_fast: True to score less data.
        precision: the precision of the matrix products of ``blimp``.
        choices: a file for the result of each pair of ``blimp``.
        babylm: the folder for the predictions of ``blimp``, made with the metric of BabyLM's code.
    """

    model: "TextModel[MaskedLanguageModel]"
    rows: DataConfig
    text: "EvaluationText | None" = None
    pairs: "tuple[str, Sequence[MinimalPair]] | None" = None
    is_fast: bool = False
    babylm: Path | None = None
    files: Sequence[str] = ()
    rerank: Path | None = None
    precision: FixedPrecision = "fp32"
    choices: Path | None = None

    @property
    def wraps(self) -> bool:
        """True if the model's inputs are wrapped in [CLS] … [SEP]."""
        return len(self.model.wrap([])) > 0

    @property
    def room(self) -> int:
        """The maximum number of tokens of a sentence, without special tokens."""
        return self.model.longest - len(self.model.wrap([]))

    def need_text(self) -> "EvaluationText":
        """Return the text, which a request of a suite that needs text has."""
        assert self.text is not None, "the suite needs text"
        return self.text

    def need_file(self, suite: str) -> Path:
        """Return the only value of --data; raise InputError if there is not exactly one."""
        if len(self.files) != 1:
            raise InputError(f"the suite {suite} needs one folder or table. Give it as --data")
        return Path(self.files[0])

    def make_embedder(self) -> "Embedder":
        """Return the embedder that `evaluate` opens for suites of vectors."""
        return cast("Embedder", self.model)

    def find_size(self, suite: Suite) -> int:
        """Return the limit of a suite for this request: `Suite.fast` or `Suite.full`."""
        full = sys.maxsize if suite.full is None else suite.full
        return suite.fast if self.is_fast else full

    def too_short(self, reason: str) -> InputError:
        """Return an InputError for a text that is too short for a suite."""
        name = self.need_text().data["name"]
        return InputError(f"{name} is too short: {reason}. Give more text.")


def mark_fast(result: SuiteResult, is_fast: bool) -> SuiteResult:
    """Record in the settings whether ``--fast`` reduced the data."""
    return replace(result, settings={**result.settings, "fast": is_fast})


def describe_files(path: Path, files: Iterable[Path], num_texts: int) -> DataFacts:
    """Return the record of data in files; `path` is its name."""
    fingerprint = "-".join(hash_file(file)[:16] for file in files)
    return {"name": str(path), "fingerprint": fingerprint, "num_texts": num_texts}


def load_suite(name: str) -> Suite:
    """Import a suite of `SUITES`."""
    return load(SUITES[name][0])


def parse_names(suite: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of suites, each once.

    Args:
        suite: names, or one string of names separated by commas.

    Raises:
        InputError: no name is given, one is unknown, or ``glue`` is combined with others.
    """
    given = suite.split(",") if isinstance(suite, str) else suite
    names = tuple(dict.fromkeys(name.strip() for name in given if name.strip()))
    valid = [*SUITES, GLUE_SUITE]
    if not names:
        raise InputError(f"no suite given. Choose from {', '.join(valid)}")
    if GLUE_SUITE in names and len(names) > 1:
        raise InputError(
            "--suite glue cannot be combined with other suites. Run them in a separate command."
        )
    for name in names:
        if name not in valid:
            raise suggest("suite", name, valid, f"choose from {', '.join(valid)}")
    return names


def before_each_pass(
    model: "MaskedLanguageModel", call: Callable[[], None]
) -> AbstractContextManager[object]:
    """Call `call` before every pass through the model until the end of the returned context."""

    def before(*_: object) -> None:
        call()

    return model.encoder.register_forward_pre_hook(before)
