"""metrics.jsonl: one JSON object a line, the source of truth about a run.

Every other view of a run (terminal, TensorBoard, reports) is derived from these lines.
"""

import json
import math
from pathlib import Path
from typing import Any, cast

from maskwright.files import naming_file

Record = dict[str, Any]


class MetricsLog:
    """Appends records to ``metrics.jsonl``, each at once, so a killed run loses none.

    Args:
        path: the file; lines after `last_step` (of a run that is resumed from an earlier
            checkpoint) are cut off, because the resumed run writes them again; so is a last line
            that a crash left unfinished.

    Raises:
        OSError: it cannot be opened or cut; names the file.
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
        """Appends one record. Numbers that JSON cannot hold (NaN, infinity) become null.

        Other numbers keep eight significant digits.

        Raises:
            OSError: the disk is full, say; names the file.
        """
        finite = {key: _jsonable(value) for key, value in record.items()}
        line = memoryview(json.dumps(finite).encode() + b"\n")
        with naming_file(self.path):
            while line:  # the last bytes of a disk take a part of it
                line = line[self._file.write(line) :]

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[Record]:
    """All whole records of a metrics file; a last line cut off by a crash is left out."""
    if not path.exists():
        return []
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            records.append(cast(Record, record))
    return records


def _end_of_kept(path: Path, last_step: int | None) -> int:
    """How many bytes of a metrics file stay when its run goes on after `last_step`.

    Steps only grow, so it is looked at from its end: a long run is resumed as fast as a short one.
    """
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    while end and last_step is not None:
        start = content.rfind(b"\n", 0, end - 1) + 1
        if _read_step(content[start:end]) <= last_step:
            break
        end = start
    return end


def _read_step(line: bytes) -> float:
    try:
        step = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf  # no record, so nothing to keep
    return step if isinstance(step, int | float) else math.inf


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
