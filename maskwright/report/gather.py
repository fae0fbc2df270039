"""The report of runs: what their directories hold, gathered and written as one HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskwright.config import read_yaml
from maskwright.errors import InputError
from maskwright.files import read_json, write_text
from maskwright.logs import read_training
from maskwright.report.facts import RunFacts
from maskwright.report.page import render_page
from maskwright.runs.evaluation_file import RESULTS_NAME, SuiteResult, parse_results
from maskwright.runs.find_data import is_prepared
from maskwright.runs.metadata import shorten_paths, shorten_provenance
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    METRICS_NAME,
    MODEL_NAME,
    check_pretraining,
    name_prepared,
)
from maskwright.shards.concat import JointStore
from maskwright.shards.reader import TokenStore

_MAX_BYTES = 64 << 20


def write_report(facts: Sequence[RunFacts], out: Path) -> None:
    """Writes the page.

    Raises:
        InputError: matplotlib is not installed, or there is nothing to report.
    """
    write_text(out, render_page(facts))


def gather_facts(run: Path, name: str) -> RunFacts:
    """All that a run directory says, and its prepared data if these are still there.

    Args:
        name: what the run is called in the report.

    Raises:
        InputError: it is no run directory, or a file in it does not hold what it should.
        ConfigError: its config.yaml is no mapping.
        ShardError: its prepared data are damaged.
    """
    check_pretraining(run)
    provenance = _read(run / "provenance.json") or {}
    data = _open_data(provenance)
    return RunFacts(
        name=name,
        records=read_training(run / METRICS_NAME),
        config=shorten_paths(read_yaml(run / CONFIG_NAME)),
        provenance=shorten_provenance(provenance),
        evaluation=_read_evaluation(run / RESULTS_NAME),
        manifest=asdict(data.manifest) if data else None,
        document_lengths=data.document_lengths.tolist() if data else (),
        is_finished=(run / MODEL_NAME).is_dir(),
    )


def _read_evaluation(path: Path) -> list[SuiteResult]:
    found = _read(path)
    return [] if found is None else parse_results(found, str(path))


def _read(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no such file."""
    if not path.exists():
        return None
    try:
        if not path.is_file():
            raise ValueError("it is no regular file")
        found = read_json(path, _MAX_BYTES)
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Restore or remove it.") from None
    return found


def _open_data(provenance: Mapping[str, Any]) -> TokenStore | None:
    """The prepared data of a run, several folders as one, if all are still there."""
    try:
        folders = name_prepared(provenance)
    except (KeyError, TypeError):
        return None
    if not all(map(is_prepared, folders.values())):
        return None
    stores = {name: TokenStore.open(path, "train", "sizes") for name, path in folders.items()}
    return next(iter(stores.values())) if len(stores) == 1 else JointStore(stores)
