"""The data that the report of a run shows, read from its run directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.config import read_yaml
from maskwright.errors import InputError, show_value
from maskwright.files import JsonObject, as_mapping, read_object
from maskwright.logs import Record, read_training
from maskwright.report.word_map import WordVectors, read_words
from maskwright.runs.evaluation_file import RESULTS_NAME, SuiteResult, find_unusual, parse_results
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    METRICS_NAME,
    MODEL_NAME,
    check_pretraining,
    list_prepared,
    shorten_paths,
    shorten_provenance,
)
from maskwright.shards.manifest import Manifest
from maskwright.shards.reader import ConcatStore, TokenStore

_MAX_BYTES = 64 << 20
_SAMPLED_AT = (0.01, 0.1, 0.5, 1.0)  # of the training time


@dataclass(frozen=True)
class RunFacts:
    """The data of one run.

    Attributes:
        records: its metrics.jsonl, as `maskwright.logs.read_training` checks it.
        config, provenance: its config.yaml and provenance.json, which are not validated.
        evaluation: the suites in its evaluation.json; empty without ``maskwright evaluate``.
        manifest: the manifest of its prepared data; None if the data are gone.
        document_lengths: the tokens of each training document; empty if the data are gone.
        is_finished: True if it has a model.
        words: frequent words and their embeddings; None in a private run, without a model, or if
            the data are gone.
    """

    name: str
    records: Sequence[Record]
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    evaluation: Sequence[SuiteResult] = ()
    manifest: Manifest | None = None
    document_lengths: Sequence[int] = ()
    is_finished: bool = True
    words: WordVectors | None = None

    @property
    def training(self) -> list[Record]:
        return [record for record in self.records if record["split"] == "train"]

    @property
    def validations(self) -> list[Record]:
        return [record for record in self.records if record["split"] == "valid"]

    @property
    def first(self) -> Record:
        """The validation of the model that the run began with; empty without one."""
        nothing: Record = {}
        return next((record for record in self.validations if record["step"] == 0), nothing)

    @property
    def last(self) -> Record:
        """The last validation; empty before the first."""
        return self.validations[-1] if self.validations else {}

    def find_largest(self, name: str) -> float:
        """Return the largest ``step``, ``tokens`` or ``seconds`` of all records."""
        return max((record[name] for record in self.records), default=0)

    def pick_samples(self) -> list[tuple[str, list[str]]]:
        """Return the time and the sample lines nearest to 1, 10, 50 and 100 % of the training."""
        sampled = [record for record in self.validations if record.get("samples")]
        if not sampled:
            return []
        end = self.find_largest("seconds") or 1.0
        picked = {
            min(sampled, key=lambda r: abs(r["seconds"] - share * end))["step"]
            for share in _SAMPLED_AT
        }
        return [
            (f"step {record['step']:,}, {100 * record['seconds'] / end:.0f} %", record["samples"])
            for record in {r["step"]: r for r in sampled}.values()
            if record["step"] in picked
        ]

    def share_time(self) -> list[tuple[str, float]]:
        """Return the seconds of steps, first steps, validation and other work."""
        training, previous, busy = self.training, 0, 0.0
        for record in training:
            speed = record.get("tokens_per_second")
            busy += max(0, record["tokens"] - previous) / speed if speed else 0.0
            previous = record["tokens"]
        total = float(self.find_largest("seconds"))
        starting = max((record.get("startup_seconds") or 0.0 for record in training), default=0.0)
        validating = sum(record.get("validation_seconds") or 0.0 for record in self.validations)
        computation = as_mapping(self.provenance.get("computation"))
        is_compiled = not str(computation.get("compiling")).startswith("not ")
        shares = [
            ("steps", min(busy, total)),
            ("first step of each shape" + ", with compilation" * is_compiled, starting),
            ("validation", validating),
        ]
        rest = max(0.0, total - sum(seconds for _, seconds in shares))
        return [*shares, ("other", rest)]


def describe_extent(result: SuiteResult) -> str:
    """Return how a result was measured, unless as usual: ``, with --fast, metric = original``."""
    return "".join(
        ", with --fast" if name == "fast" else f", {name} = {show_value(value)}"
        for name, value in find_unusual(result).items()
    )


def gather_facts(run: Path, name: str) -> RunFacts:
    """Return the data in a run directory and, if it still exists, in its prepared folder.

    Args:
        name: the name of the run in the report.

    Raises:
        InputError: `run` is not a run directory of pretraining, or a file in it is damaged.
        ConfigError: its config.yaml is not a mapping.
        ShardError: its prepared data are damaged.
    """
    check_pretraining(run)
    provenance = _read_object(run / "provenance.json") or {}
    evaluation = run / RESULTS_NAME
    suites = _read_object(evaluation)
    data, config = _open_data(run), read_yaml(run / CONFIG_NAME)
    is_finished = (run / MODEL_NAME).is_dir()
    shows_words = is_finished and data is not None and not config.get("private")
    return RunFacts(
        name=name,
        records=read_training(run / METRICS_NAME),
        config=shorten_paths(config),
        provenance=shorten_provenance(provenance),
        evaluation=[] if suites is None else parse_results(suites, str(evaluation)),
        manifest=data.manifest if data else None,
        document_lengths=data.document_lengths.tolist() if data else (),
        is_finished=is_finished,
        words=read_words(run / MODEL_NAME, data.unigram_counts) if data and shows_words else None,
    )


def _read_object(path: Path) -> JsonObject | None:
    """Return the object in a JSON file; None if there is no such file."""
    try:
        return read_object(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Restore or remove it.") from None


def _open_data(run: Path) -> TokenStore | None:
    """Return the prepared data of a run, several folders as one; None if any are gone."""
    folders = list_prepared(run)
    stores = {name: TokenStore.open(path, "train", "sizes") for name, path in folders.items()}
    return ConcatStore(stores) if len(stores) > 1 else next(iter(stores.values()), None)
