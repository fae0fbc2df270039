"""Files of minimal pairs: JSON lines in the formats of BLiMP and EWoK, plain or compressed.

BLiMP (also filtered, and the supplement of the BabyLM challenge): ``{"sentence_good": …,
"sentence_bad": …, "UID": …, "linguistics_term": …, "field": …}``; only the two sentences are
required. Warstadt et al., "BLiMP: The Benchmark of Linguistic Minimal Pairs for English", 2020.

EWoK: ``{"Domain": …, "Context1": …, "Target1": …, "Target2": …}``; `Target1` fits the context.
Ivanova et al., "Elements of World Knowledge (EWoK)", 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.corpus.readers.records import read_exact_lines
from maskwright.corpus.sources import Source, find_sources
from maskwright.errors import CorpusError, show_value
from maskwright.files import JsonObject, parse_object

UNNAMED = "unnamed"


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences: one is acceptable, the other breaks a rule or does not fit the context.

    Attributes:
        paradigm: the contrast: BLiMP's ``UID``, EWoK's ``Domain``, or else the name of the file.
        phenomenon: the kind of paradigm, BLiMP's ``linguistics_term``.
        field: the part of grammar, such as ``syntax``.
        context: text before both sentences, which is part of the input but not scored.
    """

    good: str
    bad: str
    paradigm: str = UNNAMED
    phenomenon: str = UNNAMED
    field: str = UNNAMED
    context: str = ""

    @property
    def texts(self) -> list[str]:
        """The good and the bad text with the context, as model inputs."""
        return [f"{self.context} {end}" if self.context else end for end in (self.good, self.bad)]


def read_minimal_pairs(paths: Sequence[Path | str]) -> list[MinimalPair]:
    """Return all pairs in files, or in the ``.jsonl`` files of folders, in a fixed order::

        pairs = read_minimal_pairs(["blimp/data"])
        print(pairs[0].good, pairs[0].bad)

    Args:
        paths: files, folders, patterns of ``.jsonl`` files; ``.gz``, ``.bz2``, ``.xz`` and
            ``.zst`` are unpacked.

    Raises:
        CorpusError: there is no file, a file is damaged, or a line is not a pair.
    """
    names = [str(path) for path in paths]
    sources = [
        source
        for source in find_sources(names)
        if source.kind == "jsonl" or (source.explicit and source.kind not in ("hub", "pydocs"))
    ]
    if not sources:
        raise CorpusError(f"{', '.join(names)} holds no .jsonl file of minimal pairs.")
    return [pair for source in sources for pair in _read_file(source)]


def _read_file(source: Source) -> list[MinimalPair]:
    paradigm = Path(source.label).name.partition(".")[0] or UNNAMED
    pairs = [
        _parse_line(line, f"{source.name}:{number}", paradigm)
        for number, line in enumerate(read_exact_lines(source), start=1)
        if line.strip()
    ]
    if not pairs:
        raise CorpusError(f"{source.name} is empty: it holds no minimal pairs.")
    return pairs


def _parse_line(line: str, place: str, paradigm: str) -> MinimalPair:
    record = parse_object(line)
    if record is None:
        raise CorpusError(
            f"{place} is not a JSON object with sentence_good and sentence_bad, or with Context1, "
            "Target1 and Target2. Correct or remove the line."
        )
    if "Target1" in record:
        keys = ("Target1", "Target2", "Domain", "Context1")
        good, bad, domain, context = (_take(record, key, place) for key in keys)
        return MinimalPair(good, bad, domain, "ewok", context=context)
    good, bad = (_take(record, key, place) for key in ("sentence_good", "sentence_bad"))
    return MinimalPair(
        good,
        bad,
        _take(record, "UID", place, paradigm),
        _take(record, "linguistics_term", place, UNNAMED),
        _take(record, "field", place, UNNAMED),
    )


def _take(record: JsonObject, key: str, place: str, default: str | None = None) -> str:
    value = default if record.get(key) is None else record[key]
    if value is None:
        raise CorpusError(f"{place} has no {key}. Add it, or remove the line.")
    if not isinstance(value, str) or not value.strip():
        raise CorpusError(f"{place}: {key} = {show_value(value)!r} must be a string with text.")
    return value


def read_named_pairs(source: str) -> tuple[str, list[MinimalPair]]:
    """Return the name of a file or folder of minimal pairs, and its pairs.

    Raises:
        CorpusError: there are no pairs, or they cannot be read.
    """
    return Path(source).resolve().name, read_minimal_pairs([source])
