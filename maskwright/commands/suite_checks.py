"""What would stop a suite in the middle, found before any of them begins."""

from collections.abc import Callable, Sequence

from maskwright.commands.suites import FAST_PAIRS_EACH, Request, drop_long, pin_text
from maskwright.errors import InputError
from maskwright.evaluation.minimal_pairs import choose_pairs
from maskwright.evaluation.single_mask import choose_hidden


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
