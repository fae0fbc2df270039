"""The suite ``blimp``: how often a model finds the good sentence of a pair likelier.

By pseudo-log-likelihood; a tie counts one half, so a model without preferences scores 0.5. The
default metric is ``within_word_l2r``: the sentences of a pair often differ in one word, and with
``original`` the one that falls into more tokens is scored too high (see `pseudo_likelihood`).

Files of minimal pairs are JSON lines, as BLiMP publishes them, plain or compressed:
``{"sentence_good": …, "sentence_bad": …, "UID": …, "linguistics_term": …, "field": …}``, of which
the two sentences are required. Warstadt et al., "BLiMP: The Benchmark of Linguistic Minimal Pairs
for English", 2020.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, cast

from maskwright.corpus.readers.blocks import read_blocks
from maskwright.corpus.readers.encodings import UTF_8, not_decodable
from maskwright.corpus.sources import Source, find_sources
from maskwright.errors import CorpusError, InputError, show_value
from maskwright.evaluation.intervals import score_share, wilson_interval
from maskwright.evaluation.pseudo_likelihood import Metric, score_pseudo_likelihood
from maskwright.evaluation.suites import Request, Suite, mark_fast
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.tokenizer.tokenizer import Tokenizer

UNNAMED = "unnamed"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHANCE = 0.5
_TIE = 0.5


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences, of which one breaks a rule of the language.

    Attributes:
        paradigm: what is contrasted, BLiMP's ``UID``; else the name of the file.
        phenomenon: the kind of paradigm, BLiMP's ``linguistics_term``.
        field: the part of grammar, such as ``syntax``.
    """

    good: str
    bad: str
    paradigm: str = UNNAMED
    phenomenon: str = UNNAMED
    field: str = UNNAMED


def read_minimal_pairs(paths: Sequence[Path | str]) -> list[MinimalPair]:
    """Return all pairs in files, or in the ``.jsonl`` files of folders, in a fixed order.

    Args:
        paths: files, folders, patterns; ``.gz``, ``.bz2``, ``.xz`` and ``.zst`` are unpacked.

    Raises:
        CorpusError: nothing there, a damaged file, or a line that is no pair.
    """
    names = [str(path) for path in paths]
    sources = [
        source
        for source in find_sources(names)
        if source.kind == "jsonl" or (source.explicit and source.kind not in ("hub", "pydocs"))
    ]
    if not sources:
        raise CorpusError(f"{', '.join(names)}: no .jsonl file of minimal pairs is there.")
    return [pair for source in sources for pair in _read_file(source)]


def _read_file(source: Source) -> list[MinimalPair]:
    paradigm = Path(source.label).name.partition(".")[0] or UNNAMED
    with closing(_read_lines(source)) as lines:  # a damaged line must leave no file open
        pairs = [
            _parse_line(line, source.name, number, paradigm)
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
    if not pairs:
        raise CorpusError(f"{source.name} is empty: it holds no minimal pair.")
    return pairs


def _read_lines(source: Source) -> Generator[bytes]:
    pending = b""
    with closing(read_blocks(source.path, source.compression, source.name)) as blocks:
        for number, block in enumerate(blocks):
            block = block.removeprefix(_BYTE_ORDER_MARK) if number == 0 else block
            *lines, pending = (pending + block).split(b"\n")
            yield from lines
    yield pending


def _parse_line(line: bytes, name: str, number: int, paradigm: str) -> MinimalPair:
    place = f"{name}:{number}"
    try:
        record: Any = json.loads(line.decode())
    except UnicodeDecodeError:
        raise not_decodable(line, name, UTF_8, number) from None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise CorpusError(
            f"{place} is not a JSON object with sentence_good and sentence_bad. "
            "Correct or remove the line."
        )
    record = cast(dict[str, Any], record)
    good, bad = (_take(record, key, place) for key in ("sentence_good", "sentence_bad"))
    return MinimalPair(
        good,
        bad,
        _take(record, "UID", place, paradigm),
        _take(record, "linguistics_term", place, UNNAMED),
        _take(record, "field", place, UNNAMED),
    )


def _take(record: dict[str, Any], key: str, place: str, default: str | None = None) -> str:
    value = record.get(key, default)
    if value is None:
        raise CorpusError(f"{place} has no {key}. Add it, or remove the line.")
    if not isinstance(value, str) or not value.strip():
        raise CorpusError(f"{place}: {key} = {show_value(value)!r} must be a text. Correct it.")
    return value


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
) -> SuiteResult:
    """Return the accuracy on each paradigm, phenomenon and field, and on all.

    Scores are called ``blimp/PHENOMENON/PARADIGM``, ``blimp/PHENOMENON`` and
    ``blimp/field/FIELD`` (both over their pairs), ``blimp/mean_over_paradigms`` and
    ``blimp/mean_over_pairs``. Pairs that name no phenomenon or field count in the others.

    Args:
        model: in memory, on any device; also one that is being trained.
        pairs: see `read_minimal_pairs`.
        metric: of the pseudo-log-likelihood.
        name: of the data, for the record.
        pairs_each: the most pairs of each paradigm (see `choose_pairs`); None: all.
        seed: of that choice.
        add_special_tokens, batch_tokens: as in `score_pseudo_likelihood`.

    Raises:
        InputError: no pairs, a sentence longer than the model, or no such metric.
    """
    if pairs_each is not None:
        pairs = choose_pairs(pairs, pairs_each, seed)
    if not pairs:
        raise InputError("there is no minimal pair to evaluate on.")
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    results = score_pseudo_likelihood(
        *(model, tokenizer, texts, metric),
        add_special_tokens=add_special_tokens,
        batch_tokens=batch_tokens,
    )
    totals = [result.total for result in results]
    credits = [judge(*both) for both in zip(totals[::2], totals[1::2], strict=True)]
    return SuiteResult(
        suite="blimp",
        data={
            "name": name,
            "fingerprint": fingerprint_pairs(pairs),
            "num_pairs": len(pairs),
        },
        settings={
            "metric": metric,
            "ties": _TIE,
            "pairs_each": pairs_each,
            "seed": None if pairs_each is None else seed,
            "interval": "Wilson; mean_over_paradigms with Kish's effective number of pairs",
        },
        scores=tuple(summarize_credits(pairs, credits)),
    )


def judge(good: float, bad: float) -> float:
    """Return the credit of a pair: 1 if the good sentence is likelier, 0.5 for a tie, else 0."""
    return _TIE if good == bad else float(good > bad)


def summarize_credits(pairs: Sequence[MinimalPair], credits: Sequence[float]) -> list[Score]:
    """Return the accuracies, the overall ones first; `credits` are those of the pairs."""
    paradigms: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    phenomena: defaultdict[str, list[float]] = defaultdict(list)
    fields: defaultdict[str, list[float]] = defaultdict(list)
    for pair, credit in zip(pairs, credits, strict=True):
        # Names of scores are paths. BLiMP itself writes syntax_semantics and syntax/semantics.
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

    The choice is a function of the seed and the pair itself: other paradigms, the order of files
    and the number chosen change nothing, so fewer pairs are a subset of more.

    Raises:
        InputError: `pairs_each` is below 1.
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
    return json.dumps(astuple(pair))


def read_named_pairs(source: str) -> tuple[str, list[MinimalPair]]:
    """Return the name of a file or folder of minimal pairs, and its pairs.

    Raises:
        CorpusError: there are none, or they cannot be read.
    """
    return Path(source).resolve().name, read_minimal_pairs([source])


def _check(request: Request) -> None:
    _, pairs = request.need_pairs()
    model = request.model
    for pair in choose_pairs(pairs, SUITE.fast) if request.is_fast else pairs:
        for text in (pair.good, pair.bad):
            model.wrap_text(model.tokenizer.encode(text).ids.tolist(), text)


def _score(request: Request) -> SuiteResult:
    model, (name, pairs) = request.model, request.need_pairs()
    result = evaluate_minimal_pairs(
        model.model,
        model.tokenizer,
        pairs,
        name=name,
        pairs_each=SUITE.fast if request.is_fast else None,
        add_special_tokens=request.wraps,
    )
    return mark_fast(result, result.data["num_pairs"] < len(pairs))


SUITE = Suite(
    name="blimp",
    needs="pairs",
    full=None,
    fast=20,
    check=_check,
    score=_score,
    headlines=("blimp/mean_over_paradigms",),
)
