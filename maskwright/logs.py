"""metrics.jsonl: one JSON object per line, the source of truth about a run.

Every other view of a run (terminal, TensorBoard, reports) is derived from these lines.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from maskwright.errors import InputError, show_value
from maskwright.files import naming_file, parse_object

Record = dict[str, Any]

SPLITS = ("train", "valid")
_MAX_BYTES = 256 << 20
_MAX_COUNT = 2**63
_MAX_NUMBER = 1e300
_MAX_SECONDS = 1e12
_REMEDY = "Remove the line."
_GUESS = re.compile(r"(^[✓✗]|⟨[^⟩]*⟩)")


class MetricsLog:
    """A writer of ``metrics.jsonl``, which flushes each record, so a killed run loses none.

    An incomplete last line, which a crash may leave, is removed. So are records after `last_step`,
    from which the run resumes: it writes them again.

    Raises:
        OSError: the file cannot be opened or truncated; names the file.
    """

    def __init__(self, path: Path, last_step: int | None = None) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        try:
            with naming_file(path):
                self._file.truncate(_end_of_kept(path, last_step))
        except OSError:
            self._file.close()
            raise

    def write(self, record: Record) -> None:
        """Append one record: eight significant digits; null for NaN and infinity.

        Raises:
            OSError: for example, the disk is full; names the file.
        """
        finite = {key: _jsonable(value) for key, value in record.items()}
        line = memoryview(json.dumps(finite).encode() + b"\n")
        with naming_file(self.path):
            while line:  # a nearly full disk may take only a part of it
                line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[Record]:
    """Return all complete records of a metrics file; a line that a crash cut off is skipped."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [record for record in map(parse_object, lines) if record is not None]


def read_training(path: Path) -> list[Record]:
    """Return the records of pretraining in a metrics file of unknown origin, validated.

    Each has ``split`` (``train`` or ``valid``), ``step``, ``tokens`` and ``seconds``. ``samples``
    is a list of texts, ``final`` a boolean, and every other value a finite number or None. A last
    line without a line end is skipped, because it is still being written.

    Raises:
        InputError: a line is not such a record, or the path is not a file or is too large.
    """
    if not path.exists():
        return []
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        raise InputError(f"{path} must be a file of at most {_MAX_BYTES:,} bytes.")
    *lines, _ = path.read_bytes().split(b"\n")
    return [_parse_record(line, f"{path}, line {n}") for n, line in enumerate(lines, 1)]


def _parse_record(line: bytes, where: str) -> Record:
    record = parse_object(line)
    if record is None:
        raise InputError(f"{where} must be a JSON object. {_REMEDY}")
    for name in ("split", "step", "tokens", "seconds"):
        if name not in record:
            raise InputError(f"{where} has no {name}. {_REMEDY}")
    for name, value in record.items():
        if rule := _find_rule(name, value):
            raise InputError(f"{where}: {name} = {show_value(value)} must be {rule}. {_REMEDY}")
    return record


def _find_rule(name: str, value: Any) -> str:
    """Return the rule that a value of a record breaks; empty if it breaks none."""
    if name == "split":
        return "" if value in SPLITS else "train or valid"
    if name in ("step", "tokens"):
        is_count = type(value) is int and 0 <= value < _MAX_COUNT
        return "" if is_count else "a whole number, 0 or more"
    if name == "seconds":
        is_time = is_number(value) and 0 <= value < _MAX_SECONDS
        return "" if is_time else "a number of seconds, 0 or more"
    if name == "final":
        return "" if isinstance(value, bool) else "true or false"
    if name == "samples":
        lines = cast(list[Any], value) if isinstance(value, list) else [None]
        is_texts = all(isinstance(line, str) for line in lines)
        return "" if is_texts else "a list of texts"
    return "" if value is None or is_number(value) else "a finite number or null"


def of_sources(record: Record, score: str) -> dict[str, float]:
    """Return a validation score by source; empty if the text has one source."""
    found = {name: value for name, value in record.items() if name.startswith(f"{score}/")}
    return {name.removeprefix(f"{score}/"): v for name, v in found.items() if v is not None}


def split_sample(line: str) -> Iterator[tuple[str, str]]:
    """Yield kind (right, wrong, plain) and text of each part of a sample (`inference.samples`)."""
    for number, part in enumerate(_GUESS.split(line)):
        is_guess = number % 2 == 1
        kind = ("wrong" if "✗" in part or "≠" in part else "right") if is_guess else "plain"
        if part:
            yield kind, part


class SampleCounts(NamedTuple):
    """How many masked words or tokens are right, of all drawn samples and of the shown ones.

    The fields are names in the last record of metrics.jsonl.
    """

    samples_right: int
    samples_masked: int
    samples_shown_right: int
    samples_shown: int


def describe_samples(record: Mapping[str, Any]) -> str:
    """Return the caption of the samples of the last record of a run; empty without samples."""
    if not record.get("samples"):
        return ""
    are_words = record["samples"][0][:1] in ("✓", "✗")
    found = "Held-out text with " + ("one word masked" if are_words else "tokens masked")
    if record.keys() >= {*SampleCounts._fields}:
        right, masked, shown_right, shown = (record[name] for name in SampleCounts._fields)
        noun = "words" if are_words else "tokens"
        found += f": {right:,} of {masked:,} {noun} are right, {shown_right:,} of these {shown:,}"
    return found


def is_number(value: Any) -> bool:
    """Return True if a JSON value is a finite number, not a boolean."""
    return type(value) in (int, float) and -_MAX_NUMBER < value < _MAX_NUMBER


def _end_of_kept(path: Path, last_step: int | None) -> int:
    """Return the bytes of a metrics file to keep when its run resumes; searched from the end."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    while end and last_step is not None:
        start = content.rfind(b"\n", 0, end - 1) + 1
        step = (parse_object(content[start:end]) or {}).get("step")
        if isinstance(step, int | float) and step <= last_step:
            break  # anything else is no record, or one that is written again
        end = start
    return end


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
