"""What a run directory says about its run, gathered for a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskwright.logs import Record
from maskwright.runs.evaluation_file import Score, SuiteResult, choose_result

_STAGES = (0.01, 0.1, 0.5, 1.0)


@dataclass(frozen=True)
class RunFacts:
    """One run.

    Attributes:
        records: the lines of its metrics.jsonl, as `maskwright.logs.read_training` checks them.
        config, provenance: its config.yaml and provenance.json, which may hold anything.
        evaluation: the suites in its evaluation.json; none if `maskwright evaluate` was not run.
        manifest: of its prepared data, if these are still there.
        document_lengths: tokens of each document to train on.
        is_finished: whether it has a model.
    """

    name: str
    records: Sequence[Record]
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    evaluation: Sequence[SuiteResult] = ()
    manifest: Mapping[str, Any] | None = None
    document_lengths: Sequence[int] = field(default_factory=tuple[int, ...])
    is_finished: bool = True

    @property
    def training(self) -> list[Record]:
        return [record for record in self.records if record["split"] == "train"]

    @property
    def validations(self) -> list[Record]:
        return [record for record in self.records if record["split"] == "valid"]

    @property
    def last(self) -> Record:
        """The last validation; empty before the first one."""
        return self.validations[-1] if self.validations else {}

    def find_largest(self, name: str) -> float:
        """Return the largest ``step``, ``tokens`` or ``seconds`` of all records."""
        return max((record[name] for record in self.records), default=0)

    def pick_samples(self) -> list[tuple[str, list[str]]]:
        """What was guessed at 1, 10, 50 and 100 % of the training: when, and the lines."""
        sampled = [record for record in self.validations if record.get("samples")]
        if not sampled:
            return []
        end = self.find_largest("seconds") or 1.0
        picked = {
            min(sampled, key=lambda r: abs(r["seconds"] - share * end))["step"] for share in _STAGES
        }
        return [
            (f"step {record['step']:,}, {100 * record['seconds'] / end:.0f} %", record["samples"])
            for record in {r["step"]: r for r in sampled}.values()
            if record["step"] in picked
        ]

    def share_time(self) -> list[tuple[str, float]]:
        """Seconds of steps, of their first ones (compiling), of validations, and of all else."""
        training, previous, busy = self.training, 0, 0.0
        for record in training:
            speed = record.get("tokens_per_second")
            busy += max(0, record["tokens"] - previous) / speed if speed else 0.0
            previous = record["tokens"]
        total = float(self.find_largest("seconds"))
        starting = max((record.get("startup_seconds") or 0.0 for record in training), default=0.0)
        validating = sum(record.get("validation_seconds") or 0.0 for record in self.validations)
        shares = [
            ("steps", min(busy, total)),
            ("first steps of a shape: compiling", starting),
            ("validations", validating),
        ]
        rest = max(0.0, total - sum(seconds for _, seconds in shares))
        return [*shares, ("everything else", rest)]

    def describe_extent(self, suite: str) -> str:
        """Return ``, with --fast`` if the suite scored a part of its text, else nothing."""
        found = choose_result(self.evaluation, suite)
        return ", with --fast" if found and found.settings.get("fast") else ""

    def find_scores(self, suite: str) -> Sequence[Score]:
        """Return the scores of a suite in evaluation.json; none if it was not run."""
        found = choose_result(self.evaluation, suite)
        return found.scores if found else ()
