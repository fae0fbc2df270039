"""The ``evaluation.json`` of a run: the scores of its suites in one format.

See docs/evaluation.md.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, Required, TypedDict, cast

from maskwright.errors import InputError, show_value
from maskwright.files import read_json
from maskwright.logs import is_number
from maskwright.provenance import Environment

RESULTS_NAME = "evaluation.json"
FORMAT = 1
# The settings that make another measurement on the same data, with their usual values.
_USUAL: dict[str, object] = {
    "fast": False,
    "metric": "within_word_l2r",
    "precision": "fp32",
    "pooling": "mean",
    "reranker": None,
}


@dataclass(frozen=True)
class Score:
    """A value with its 95 % confidence interval and its baseline.

    Attributes:
        name: such as ``masked_accuracy`` or ``blimp/binding/principle_A_case_2``; unique among the
            scores of all suites.
        low, high: the interval; None if there is none.
        num_samples: the number of predictions, pairs or sentences in the mean.
        baseline: the value of a trivial model: token frequencies, or 0.5 for a choice of two.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    num_samples: int
    baseline: float | None = None


class DataFacts(TypedDict, total=False):
    """The data that a model was scored on; a suite sets only the fields that it has.

    `fingerprint`: a sha256. `unigram_counts`: the text whose token frequencies are the baseline.
    `is_cut`: True if only the first `num_characters` were read. `num_left_out`: texts that are
    longer than the model's limit.
    """

    name: Required[str]
    fingerprint: Required[str]
    unigram_counts: str
    num_characters: int
    is_cut: bool
    num_texts: int
    num_tokens: int
    num_unknown_tokens: int
    num_left_out: int
    num_pairs: int


@dataclass(frozen=True)
class SuiteResult:
    """The scores of one suite.

    `settings` are all that they depend on but the data: masks, seed, metric, kind of interval.
    """

    suite: str
    data: DataFacts
    settings: dict[str, Any]
    scores: tuple[Score, ...]


class ScoreRecord(TypedDict):
    """A `Score` in JSON: a value that is undefined, or not finite, is null."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    num_samples: int
    baseline: float | None


class ModelFacts(TypedDict):
    """Name, hash, size and tokenizer of a model; `sha256` covers config.json and the weights."""

    name: str
    sha256: str
    num_parameters: int
    tokenizer_fingerprint: str


class ResultRecord(TypedDict):
    """A `SuiteResult` in JSON."""

    suite: str
    data: DataFacts
    settings: dict[str, Any]
    scores: list[ScoreRecord]


class SuiteRecord(ResultRecord):
    """A `SuiteResult` in ``evaluation.json``, with time, environment and `describe_computation`."""

    date: str
    environment: Environment
    computation: dict[str, str]


class EvaluationResult(TypedDict):
    """The content of an ``evaluation.json``."""

    format: int
    model: ModelFacts
    suites: list[SuiteRecord]


def record_result(result: SuiteResult) -> ResultRecord:
    """Convert a result to JSON values."""
    return to_plain(asdict(result))


def to_plain(value: Any) -> Any:
    """Convert values to JSON: tuples to lists, numbers that are not finite to null."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in cast(Sequence[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def merge_earlier(path: Path, new: EvaluationResult) -> EvaluationResult:
    """Return `new` after the suites of an earlier file that it does not replace.

    A result replaces an earlier one of the same suite, data and settings that make it another
    measurement. Results of other weights are dropped; so is a file that cannot be read.
    """
    replaced = {_identify(suite) for suite in new["suites"]}
    try:
        earlier = read_json(path)
        is_same = earlier["model"]["sha256"] == new["model"]["sha256"]
        suites = earlier["suites"] if is_same and earlier["format"] == FORMAT else ()
        kept = [suite for suite in suites if _identify(suite) not in replaced]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = []
    return {**new, "suites": [*kept, *new["suites"]]}


def _identify(suite: SuiteRecord) -> tuple[Any, ...]:
    settings = {name: suite["settings"].get(name, usual) for name, usual in _USUAL.items()}
    length = suite["settings"].get("max_seq_length")  # of rows of `mlm`; that of the run is usual
    return suite["suite"], suite["data"]["fingerprint"], length, *settings.values()


def find_unusual(result: SuiteResult) -> dict[str, object]:
    """Return the settings that make a result another measurement than the usual one."""
    found = {name: result.settings.get(name, usual) for name, usual in _USUAL.items()}
    return {name: value for name, value in found.items() if value != _USUAL[name]}


def choose_result(results: Sequence[SuiteResult], suite: str) -> SuiteResult | None:
    """Return the latest result of a suite; None if there is none.

    On the same data a usual measurement is preferred, even if another one is newer.
    """
    found = [result for result in reversed(results) if result.suite == suite]
    on_same_data = [r for r in found if r.data.get("name") == found[0].data.get("name")]
    return min(on_same_data, key=_count_unusual, default=None)


def _count_unusual(result: SuiteResult) -> tuple[bool, int]:
    unusual = find_unusual(result)
    return "fast" in unusual, len(unusual)


def parse_results(values: Any, where: str) -> list[SuiteResult]:
    """Return the results of an ``evaluation.json`` of unknown origin, validated.

    A value that is null is NaN: it was undefined, or not finite.

    Args:
        where: the name of the file, for messages.

    Raises:
        InputError: a value of another type than `SuiteResult` and `Score` have, or a score that is
            not finite.
    """
    found: list[SuiteResult] = []
    for number, suite in enumerate(_get(values, "suites", list, where)):
        place = f"{where}: suites[{number}]"
        scores = [
            _parse_score(score, f"{place}.scores[{n}]")
            for n, score in enumerate(_get(suite, "scores", list, place))
        ]
        name, data = _get(suite, "suite", str, place), _get(suite, "data", dict, place)
        settings = _get(suite, "settings", dict, place)
        found.append(SuiteResult(name, data, settings, tuple(scores)))
    return found


def _parse_score(values: Any, where: str) -> Score:
    name = _get(values, "name", str, where)
    numbers = {field.name: values.get(field.name) for field in fields(Score)[1:]}
    for field, value in numbers.items():
        if value is not None and not is_number(value):
            _refuse(value, "a finite number or null", f"{where}.{field}")
    value = numbers.pop("value")
    return Score(name, math.nan if value is None else value, **numbers)


def _get(entries: Any, field: str, kind: type, where: str) -> Any:
    """Return a field of an object; raise InputError unless it is of this type."""
    if not isinstance(entries, dict):
        _refuse(entries, "an object", where)
    value = cast(dict[str, Any], entries).get(field)
    if not isinstance(value, kind):
        _refuse(value, {dict: "an object", list: "a list", str: "a text"}[kind], f"{where}.{field}")
    return value


def _refuse(value: Any, description: str, where: str) -> NoReturn:
    raise InputError(
        f"{where} = {show_value(value)} must be {description}. Run maskwright evaluate again, "
        "which writes a new file."
    )
