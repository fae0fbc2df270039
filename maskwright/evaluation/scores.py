"""What a suite says of a model: one form for every score. See docs/evaluation.md."""

from dataclasses import dataclass, fields
from typing import Any, NoReturn

from maskwright.errors import InputError, show_value
from maskwright.logs import is_number

# The scores that a model is known by, below the names of their suites; shown where room is short.
HEADLINES = (
    "mlm/loss",
    "mlm/masked_accuracy",
    "mlm/masked_accuracy_top5",
    "mlm/bits_per_character",
    "fill/accuracy",
    "pll/pseudo_perplexity",
    "blimp/mean_over_paradigms",
)


@dataclass(frozen=True)
class Score:
    """One number, how sure it is, and what it is to be compared with.

    Attributes:
        name: such as ``masked_accuracy`` or ``blimp/binding/principle_A_case_2``; no two scores of
            all suites together share one.
        low, high: 95 % confidence interval, None where there is none.
        num_samples: of what it is a mean (predictions, pairs, sentences).
        baseline: what no learning would score: token frequencies, 0.5 for a choice of two.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    num_samples: int
    baseline: float | None = None


@dataclass(frozen=True)
class SuiteResult:
    """What one suite found.

    Attributes:
        suite: ``mlm``, ``fill``, ``pll`` or ``blimp``.
        data: ``name`` and ``fingerprint`` (sha256) of what the model was asked.
        settings: all else that the scores depend on: masks, seed, metric, kind of interval.
    """

    suite: str
    data: dict[str, Any]
    settings: dict[str, Any]
    scores: tuple[Score, ...]


def parse_results(values: Any, where: str) -> list[SuiteResult]:
    """Return the results of an ``evaluation.json`` that anybody may have written.

    Args:
        values: what the file holds.
        where: its name for messages.

    Raises:
        InputError: a value of another type than `SuiteResult` and `Score` have, or a score that is
            not finite. One of a value null (it was not finite when it was written) is left out.
    """
    suites = _check(values, dict, "an object", where).get("suites")
    found: list[SuiteResult] = []
    for number, suite in enumerate(_check(suites, list, "a list", f"{where}: suites")):
        place = f"{where}: suites[{number}]"
        entries = _check(suite, dict, "an object", place)
        name, data, settings, listed = (
            _check(entries.get(field), kind, form, f"{place}.{field}")
            for field, kind, form in (
                ("suite", str, "a text"),
                ("data", dict, "an object"),
                ("settings", dict, "an object"),
                ("scores", list, "a list"),
            )
        )
        scores = [_parse_score(score, f"{place}.scores[{n}]") for n, score in enumerate(listed)]
        kept = tuple(score for score in scores if score is not None)
        found.append(SuiteResult(name, data, settings, kept))
    return found


def _parse_score(values: Any, where: str) -> Score | None:
    entries = _check(values, dict, "an object", where)
    _check(entries.get("name"), str, "a text", f"{where}.name")
    names = [field.name for field in fields(Score)]
    for name in names[1:]:
        value = entries.get(name)
        if value is not None and not is_number(value):
            _refuse(value, "a finite number or null", f"{where}.{name}")
    if entries.get("value") is None:
        return None
    return Score(**{name: entries.get(name) for name in names})


def _check(value: Any, kind: type, form: str, where: str) -> Any:
    return value if isinstance(value, kind) else _refuse(value, form, where)


def _refuse(value: Any, form: str, where: str) -> NoReturn:
    raise InputError(
        f"{where} = {show_value(value)} must be {form}. Run maskwright evaluate again, which "
        "writes the file anew."
    )
