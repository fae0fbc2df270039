"""The suite ``blimp``: the accuracy of a model on minimal pairs.

A prediction is correct if the good sentence has the higher pseudo-log-likelihood; a tie counts one
half, so chance is 0.5. A context, as in EWoK, is part of the input but not scored. The default
metric is ``within_word_l2r``: the sentences of a pair often differ in one word, and ``original``
overrates the word with more tokens (see `pseudo_likelihood`).
"""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from itertools import takewhile
from pathlib import Path

from maskwright.console import tell
from maskwright.errors import InputError
from maskwright.evaluation.data import UNNAMED, MinimalPair
from maskwright.evaluation.intervals import score_share, wilson_interval
from maskwright.evaluation.pseudo_likelihood import Metric, PseudoLikelihoodScorer, scoring
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.files import JsonObject, write_json
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.tokenizer.lost import check_known
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer
from maskwright.train.config import FixedPrecision

_CHANCE = 0.5
_TIE = 0.5


def evaluate_minimal_pairs(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    metric: Metric = "within_word_l2r",
    *,
    name: str = "minimal pairs",
    pairs_each: int | None = None,
    seed: int = 0,
    add_special_tokens: bool | None = None,
    batch_tokens: int | None = None,
    predictions: Path | None = None,
    choices: Path | None = None,
    precision: FixedPrecision = "fp32",
) -> SuiteResult:
    """Return the accuracy on each paradigm, phenomenon and field, and on all pairs.

    Scores are named ``blimp/PHENOMENON/PARADIGM``, ``blimp/PHENOMENON`` and
    ``blimp/field/FIELD`` (both over their pairs), ``blimp/mean_over_paradigms`` and
    ``blimp/mean_over_pairs``. A pair without a phenomenon or field counts in the other scores::

        model, tokenizer = load_model("runs/mine")
        result = evaluate_minimal_pairs(model, tokenizer, read_minimal_pairs(["blimp/data"]))

    Args:
        pairs: see `read_minimal_pairs`.
        metric: the variant of pseudo-log-likelihood.
        name: the name of the data, for the results.
        pairs_each, seed: the maximum pairs of each paradigm (`choose_pairs`); None: all.
        add_special_tokens, batch_tokens: as in `score_pseudo_likelihood`.
        predictions: a file for the result of `list_predictions`; None: no file.
        choices: a file for the result of each pair by paradigm, in order; None: no file.
        precision: as in `scoring`.

    Raises:
        InputError: there are no pairs, a sentence exceeds the model's maximum length, or there is
            no such metric.
    """
    if pairs_each is not None:
        pairs = choose_pairs(pairs, pairs_each, seed)
    check_known(tokenizer, [text for pair in pairs for text in pair.texts], name)
    with scoring(model, tokenizer, add_special_tokens, precision) as scorer:
        credits = _score_pairs(scorer, tokenizer, pairs, metric, batch_tokens)
    for path, list_pairs in ((predictions, list_predictions), (choices, _list_choices)):
        if path is not None:
            write_json(path, list_pairs(pairs, credits))
    return SuiteResult(
        suite="blimp",
        data={"name": name, "fingerprint": fingerprint_pairs(pairs), "num_pairs": len(pairs)},
        settings={
            "metric": metric,
            "precision": precision,
            "ties": _TIE,
            "pairs_each": pairs_each,
            "seed": None if pairs_each is None else seed,
            "interval": "Wilson; mean_over_paradigms with Kish's effective number of pairs",
        },
        scores=tuple(summarize_credits(pairs, credits)),
    )


def _score_pairs(
    scorer: PseudoLikelihoodScorer,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    metric: Metric,
    batch_tokens: int | None,
) -> list[float]:
    """Return the score of each pair; raise InputError if there is none."""
    if not pairs:
        raise InputError("there are no minimal pairs to evaluate on. Give at least one.")
    texts, num_given = _encode(tokenizer, pairs)
    totals = [math.fsum(s) for s in scorer.score_encoded(texts, metric, batch_tokens, num_given)]
    return [score_pair(*both) for both in zip(totals[::2], totals[1::2], strict=True)]


def _list_choices(pairs: Sequence[MinimalPair], credits: Sequence[float]) -> JsonObject:
    """Return the score of each pair by paradigm, in order."""
    choices: dict[str, list[float]] = {}
    for pair, credit in zip(pairs, credits, strict=True):
        choices.setdefault(f"{pair.phenomenon}/{pair.paradigm}", []).append(credit)
    return {"fingerprint": fingerprint_pairs(pairs), "choices": choices}


def _encode(
    tokenizer: Tokenizer, pairs: Sequence[MinimalPair]
) -> tuple[list[EncodedText], list[int]]:
    """Return the two texts of each pair, and the number of context tokens of each text.

    A token that begins in the context and ends after it is scored.
    """
    texts, num_given = list[EncodedText](), list[int]()
    for pair in pairs:
        context = tokenizer.encode(pair.context).ids.tolist()
        for text in tokenizer.encode_batch(pair.texts):
            texts.append(text)
            both = zip(context, text.ids.tolist(), strict=False)
            num_given.append(sum(1 for _ in takewhile(lambda ids: ids[0] == ids[1], both)))
    describe_equal(texts, tell)
    return texts, num_given


def describe_equal(texts: Sequence[EncodedText], report: Callable[[str], None]) -> None:
    """Report the number of pairs whose two texts are the same tokens, if there are any."""
    both = list(zip(texts[::2], texts[1::2], strict=True))
    if count := sum(good.ids.tolist() == bad.ids.tolist() for good, bad in both):
        pairs = "pair is" if count == 1 else "pairs are"
        rule = f"{count:,} of {len(both):,} {pairs} the same tokens, such as [UNK]"
        report(f"{rule}: each counts one half. A tokenizer of more characters tells them apart.")


def list_predictions(
    pairs: Sequence[MinimalPair], credits: Sequence[float]
) -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return the predicted sentences of each paradigm in the format of a BabyLM submission.

    Every other tie is resolved as correct, so that ties count one half there as well.
    """
    found: dict[str, dict[str, list[dict[str, str]]]] = {}
    ties = Counter[str]()
    for pair, credit in zip(pairs, credits, strict=True):
        ties[pair.paradigm] += credit == _TIE
        listed = found.setdefault(pair.paradigm, {"predictions": []})["predictions"]
        chooses_good = ties[pair.paradigm] % 2 == 1 if credit == _TIE else credit > _TIE
        chosen = (" " if pair.context else "") + (pair.good if chooses_good else pair.bad)
        listed.append({"id": f"{pair.paradigm}_{len(listed)}", "pred": chosen})
    return found


def score_pair(good: float, bad: float) -> float:
    """Return the score of a pair: 1 if the good sentence is likelier, 0.5 for a tie, else 0."""
    return _TIE if good == bad else float(good > bad)


def summarize_credits(pairs: Sequence[MinimalPair], credits: Sequence[float]) -> list[Score]:
    """Return the accuracies, the overall ones first, from the score of each pair (`credits`)."""
    paradigms: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    phenomena: defaultdict[str, list[float]] = defaultdict(list)
    fields: defaultdict[str, list[float]] = defaultdict(list)
    for pair, credit in zip(pairs, credits, strict=True):
        # Score names are paths, and BLiMP uses both syntax_semantics and syntax/semantics.
        names = (pair.field, pair.phenomenon, pair.paradigm)
        field, phenomenon, paradigm = (name.replace("/", "_") for name in names)
        paradigms[phenomenon, paradigm].append(credit)
        phenomena[phenomenon].append(credit)
        fields[field].append(credit)
    means = [sum(found) / len(found) for found in paradigms.values()]
    # The effective sample size of a mean of means over groups of unequal sizes (Kish 1965).
    effective = round(len(means) ** 2 / sum(1 / len(found) for found in paradigms.values()))
    overall = sum(means) / len(means)
    low, high = wilson_interval(overall * effective, effective)
    return [
        Score("blimp/mean_over_paradigms", overall, low, high, len(credits), _CHANCE),
        _score_credits("blimp/mean_over_pairs", credits),
        *(_score_credits(f"blimp/field/{name}", fields[name]) for name in _named(fields)),
        *(_score_credits(f"blimp/{name}", phenomena[name]) for name in _named(phenomena)),
        *(_score_credits(f"blimp/{'/'.join(name)}", found) for name, found in paradigms.items()),
    ]


def _named(groups: Iterable[str]) -> list[str]:
    return sorted(name for name in groups if name != UNNAMED)


def _score_credits(name: str, credits: Sequence[float]) -> Score:
    return score_share(name, sum(credits), len(credits), _CHANCE)


def choose_pairs(pairs: Sequence[MinimalPair], pairs_each: int, seed: int = 0) -> list[MinimalPair]:
    """Return at most `pairs_each` pairs of each paradigm, in their order.

    The choice is a function of the seed and the pair itself. It does not depend on other paradigms
    or the order of files, and a smaller choice is a subset of a larger one.

    Raise InputError if `pairs_each` is below 1.
    """
    if pairs_each < 1:
        raise InputError(f"pairs_each = {pairs_each} must be at least 1.")
    paradigms: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        paradigms[pair.phenomenon, pair.paradigm].append(number)
    keys = [hashlib.sha256(f"{seed}\0{_spell(pair)}".encode()).digest() for pair in pairs]
    chosen = {
        number
        for members in paradigms.values()
        for number in sorted(members, key=keys.__getitem__)[:pairs_each]
    }
    return [pair for number, pair in enumerate(pairs) if number in chosen]


def fingerprint_pairs(pairs: Iterable[MinimalPair]) -> str:
    """Return the sha256 (hex) of the pairs in their order."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(_spell(pair).encode() + b"\n")
    return digest.hexdigest()


def _spell(pair: MinimalPair) -> str:
    fields = astuple(pair)
    return json.dumps(fields if pair.context else fields[:-1])


def _check(request: Request) -> None:
    assert request.pairs is not None, "the suite needs pairs"
    model, (name, pairs) = request.model, request.pairs
    check_known(model.tokenizer, [text for pair in pairs for text in pair.texts], name)
    for pair in choose_pairs(pairs, BLIMP.fast) if request.is_fast else pairs:
        for text in pair.texts:
            model.wrap_text(model.tokenizer.encode(text).ids.tolist(), text)


def _score(request: Request) -> SuiteResult:
    assert request.pairs is not None, "the suite needs pairs"
    model, (name, pairs) = request.model, request.pairs
    metric, predictions = "within_word_l2r", None
    if request.babylm is not None:
        folder = request.babylm / ("ewok" if pairs[0].context else "blimp") / name
        folder.mkdir(parents=True, exist_ok=True)
        metric, predictions = "original", folder / "predictions.json"
    result = evaluate_minimal_pairs(
        model.model,
        model.tokenizer,
        pairs,
        metric,
        name=name,
        predictions=predictions,
        choices=request.choices,
        pairs_each=BLIMP.fast if request.is_fast else None,
        add_special_tokens=request.wraps,
        precision=request.precision,
    )
    return mark_fast(result, result.data.get("num_pairs", 0) < len(pairs))


BLIMP = Suite(
    name="blimp",
    needs="pairs",
    fast=20,
    check=_check,
    score=_score,
    headlines=("blimp/mean_over_paradigms",),
)
