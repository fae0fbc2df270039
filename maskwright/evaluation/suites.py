"""The evaluation suites by name: what ``maskwright evaluate`` runs, and training at validations.

What would stop a suite in the middle, found before any of them begins.
"""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from maskwright.data.collate import SpecialIds
from maskwright.data.config import DataConfig
from maskwright.data.masking import Vocabulary
from maskwright.errors import InputError
from maskwright.evaluation.held_out_text import EvaluationText
from maskwright.evaluation.masked_detail import MaskedTables, measure_masked_lm
from maskwright.evaluation.masked_suite import describe_tables
from maskwright.evaluation.minimal_pairs import (
    MinimalPair,
    choose_pairs,
    evaluate_minimal_pairs,
    read_minimal_pairs,
)
from maskwright.evaluation.pinned import PinnedText
from maskwright.evaluation.pseudo_perplexity import evaluate_encoded
from maskwright.evaluation.scores import SuiteResult
from maskwright.evaluation.single_mask import choose_hidden, evaluate_fill
from maskwright.inference.text_model import TextModel
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.progress import Pulse
from maskwright.tokenizer.token_text import count_characters
from maskwright.tokenizer.tokenizer import EncodedText


@dataclass(frozen=True)
class Sizes:
    """How much of a text a suite looks at: token slots, sentences."""

    mlm_slots: int
    fill_sentences: int
    pll_sentences: int


FAST_PAIRS_EACH = 20  # of each paradigm
FULL = Sizes(mlm_slots=262_144, fill_sentences=10_000, pll_sentences=500)
FAST = Sizes(mlm_slots=32_768, fill_sentences=1_000, pll_sentences=50)


@dataclass(frozen=True)
class Request:
    """A model and what it is to be asked.

    Attributes:
        model: with its tokenizer.
        rows: how the suite ``mlm`` cuts text into rows, as far as the model has positions.
        text: what ``mlm``, ``fill`` and ``pll`` are about; None if none of them is wanted.
        pairs: minimal pairs for ``blimp``, and their name; None if it is not wanted.
        is_fast: less of everything, for a look.
    """

    model: TextModel
    rows: DataConfig
    text: EvaluationText | None = None
    pairs: tuple[str, Sequence[MinimalPair]] | None = None
    is_fast: bool = False

    @property
    def sizes(self) -> Sizes:
        return FAST if self.is_fast else FULL

    @property
    def wraps(self) -> bool:
        """Whether the model's inputs are [CLS] … [SEP]."""
        return len(self.model.wrap([])) > 0

    def need_text(self) -> EvaluationText:
        """The text.

        Raises:
            InputError: there is none.
        """
        if self.text is None:
            raise InputError("the suites mlm, fill and pll need --data: a prepared folder, or text")
        return self.text


def read_pairs(source: str) -> tuple[str, list[MinimalPair]]:
    """The name of a file or folder of minimal pairs, and the pairs in it.

    Raises:
        CorpusError: there are none, or they cannot be read.
    """
    return Path(source).resolve().name, read_minimal_pairs([source])


def pin_text(request: Request) -> PinnedText:
    """The text as rows with pinned masks, as long as the model takes."""
    text, tokenizer = request.need_text(), request.model.tokenizer
    config = replace(
        request.rows,
        max_seq_length=min(request.rows.max_seq_length, request.model.longest),
        special_tokens=request.wraps,
    )
    return PinnedText(
        text.corpus,
        config,
        SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, request.wraps),
        Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, text.counts),
        request.sizes.mlm_slots,
    )


def measure_tables(request: Request) -> MaskedTables:
    """Sums by row of the suite ``mlm``, from which models can be compared."""
    model, counts = request.model, request.need_text().counts
    return measure_masked_lm(
        model.model, pin_text(request), counts, count_characters(model.tokenizer)
    )


def _run_mlm(request: Request) -> SuiteResult:
    return describe_tables(measure_tables(request), pin_text(request), request.need_text().data)


def _run_fill(request: Request) -> SuiteResult:
    text, model = request.need_text(), request.model
    sentences = text.sentences(request.sizes.fill_sentences)
    return evaluate_fill(
        model.model, model.tokenizer, sentences, text.counts, text.data, request.wraps
    )


def _run_pll(request: Request) -> SuiteResult:
    text, model = request.need_text(), request.model
    chosen = text.encoded(request.sizes.pll_sentences)
    texts = drop_long(chosen, model)
    data = {**text.data, "num_left_out": len(chosen) - len(texts)}
    return evaluate_encoded(
        *(model.model, model.tokenizer, texts, data), add_special_tokens=request.wraps
    )


def drop_long(texts: Sequence[EncodedText], model: TextModel) -> list[EncodedText]:
    """Those that the model has positions for."""
    room = model.longest - len(model.wrap([]))
    return [text for text in texts if len(text.ids) <= room]


def _run_blimp(request: Request) -> SuiteResult:
    if request.pairs is None:
        raise InputError("the suite blimp needs --blimp: a folder of minimal pairs")
    model, (name, pairs) = request.model, request.pairs
    return evaluate_minimal_pairs(
        model.model,
        model.tokenizer,
        pairs,
        name=name,
        pairs_each=FAST_PAIRS_EACH if request.is_fast else None,
        add_special_tokens=request.wraps,
    )


@contextmanager
def before_each_pass(model: MaskedLanguageModel, call: Callable[[], None]) -> Generator[None]:
    """Within this context `call` is called before every pass through the model."""
    handle = model.encoder.register_forward_pre_hook(lambda *_: call())
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def telling(model: TextModel, what: str, tell: Callable[[str], None]) -> Generator[None]:
    """Says what the model is at: on a terminal at once, and everywhere if it takes its time."""
    pulse, began = Pulse(tell), time.monotonic()
    if sys.stderr.isatty():
        pulse.say(f"{what} …")

    def beat() -> None:
        pulse.beat(f"{what}: {(time.monotonic() - began) / 60:.1f} minutes so far")

    with before_each_pass(model.model, beat):
        yield


SUITES: dict[str, Callable[[Request], SuiteResult]] = {
    "mlm": _run_mlm,
    "fill": _run_fill,
    "pll": _run_pll,
    "blimp": _run_blimp,
}
NEED_TEXT = ("mlm", "fill", "pll")


def check_request(suites: Sequence[str], request: Request) -> None:
    """That the text is enough for the suites, and that the model has positions for the pairs.

    Raises:
        InputError: it is not.
    """
    for suite in suites:
        _CHECKS[suite](request)


def _check_mlm(request: Request) -> None:
    if not any(batch.num_predictions for batch in pin_text(request).batches()):
        raise _too_short(request, "no token of it is hidden")


def _check_fill(request: Request) -> None:
    model = request.model
    longest = model.longest - len(model.wrap([]))
    sentences = request.need_text().sentences(request.sizes.fill_sentences)
    cut = [ids[:longest] for ids in sentences]
    if all(place is None for place in choose_hidden(cut, model.tokenizer.ordinary_ids)):
        raise _too_short(request, "no sentence of it has a token to hide")


def _check_pll(request: Request) -> None:
    texts = request.need_text().encoded(request.sizes.pll_sentences)
    if not any(len(text.ids) for text in drop_long(texts, request.model)):
        raise _too_short(request, "no sentence of it has a token and fits the model")


def _check_blimp(request: Request) -> None:
    if request.pairs is None:
        return
    _, pairs = request.pairs
    model = request.model
    for pair in choose_pairs(pairs, FAST_PAIRS_EACH) if request.is_fast else pairs:
        for text in (pair.good, pair.bad):
            model.wrap_text(model.tokenizer.encode(text).ids.tolist(), text)


def _too_short(request: Request, what: str) -> InputError:
    name = request.need_text().data["name"]
    return InputError(f"{name} is too short: {what}. Give more text.")


_CHECKS: dict[str, Callable[[Request], None]] = {
    "mlm": _check_mlm,
    "fill": _check_fill,
    "pll": _check_pll,
    "blimp": _check_blimp,
}
