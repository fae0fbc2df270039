"""metrics.jsonl: one JSON object a line, the source of truth about a run.

Every other view of a run (terminal, TensorBoard, reports) is derived from these lines.
"""

import json
import math
from pathlib import Path
from typing import Any, cast

Record = dict[str, Any]


class MetricsLog:
    """Appends records to ``metrics.jsonl`` and flushes each, so a killed run loses none.

    Args:
        path: the file; lines after `last_step` (of a run that is resumed from an earlier
            checkpoint) are removed, because the resumed run writes them again.
    """

    def __init__(self, path: Path, last_step: int | None = None) -> None:
        self.path = path
        kept = [record for record in read_metrics(path) if _is_kept(record, last_step)]
        if path.exists():
            text = "".join(json.dumps(record) + "\n" for record in kept)
            replacement = path.with_suffix(".tmp")
            replacement.write_text(text, encoding="utf-8")
            replacement.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        """Appends one record. Numbers that JSON cannot hold (NaN, infinity) become null.

        Other numbers keep eight significant digits.
        """
        finite = {key: _jsonable(value) for key, value in record.items()}
        self._file.write(json.dumps(finite) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[Record]:
    """All whole records of a metrics file; a last line cut off by a crash is left out."""
    if not path.exists():
        return []
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(cast(Record, record))
    return records


def _is_kept(record: Record, last_step: int | None) -> bool:
    return last_step is None or record.get("step", 0) <= last_step


def _jsonable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
