"""An evaluation of one model: its data found, its suites run, its results written."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.data.config import DataConfig
from maskwright.errors import CheckpointError, InputError
from maskwright.evaluation.held_out_text import open_text
from maskwright.evaluation.scores import SuiteResult
from maskwright.evaluation.suites import (
    NEED_TEXT,
    SUITES,
    Request,
    check_request,
    read_pairs,
    telling,
)
from maskwright.files import hash_file, read_json, write_json
from maskwright.inference.text_model import TextModel
from maskwright.model.flops import count_parameters
from maskwright.model_folder.folder import CONFIG
from maskwright.provenance import describe_environment
from maskwright.runs.find_data import is_prepared
from maskwright.runs.run_directory import (
    CONFIG_NAME,
    is_fine_tuning,
    load_run_config,
    name_prepared,
    read_provenance,
)

FORMAT = 1
RESULTS_NAME = "evaluation.json"
CORPORA = "MASKWRIGHT_DATA"
_MAX_RESULTS_BYTES = 64 << 20


class Evaluation:
    """A model that is evaluated.

    Args:
        argument: how the user named it.
        folder: its model folder.
        device: where to compute; None: the GPU if there is one.

    Attributes:
        run: the run directory that `argument` is, or None.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device.
    """

    def __init__(self, argument: str, folder: Path, device: str | None = None) -> None:
        self.argument, self.folder = argument, folder
        self.run = find_run(argument)
        self.model = TextModel(folder, device)

    @cached_property
    def training_data(self) -> list[Path]:
        """The prepared folders that a run was trained on, if they are still there."""
        return find_training_data(self.argument)

    def make_request(
        self,
        suites: Sequence[str],
        sources: Sequence[str],
        max_seq_length: int | None = None,
        blimp: str | None = None,
        *,
        is_fast: bool = False,
        packed: bool | None = None,
    ) -> Request:
        """What the suites need, read and checked before any of them begins.

        Args:
            max_seq_length, packed: of rows; without any the run's.
            sources: prepared folders or text files; without any the run's own data.
            blimp: a folder of minimal pairs.

        Raises:
            InputError: no data or too little, or a row length or a sentence of a pair that the
                model has no positions for.
            ShardError: data that was prepared with another tokenizer.
        """
        rows = choose_rows(self.argument, self.model.longest)
        if max_seq_length is not None:
            rows = replace(rows, max_seq_length=max_seq_length)
        if packed is not None:
            rows = replace(rows, packed=packed)
        if rows.max_seq_length > self.model.longest:
            raise InputError(
                f"--seq-length = {max_seq_length} is more than the {self.model.longest} positions "
                f"of the model. Give at most {self.model.longest}."
            )
        pairs = read_pairs(_find_pairs(blimp)) if "blimp" in suites else None
        if pairs is None and blimp is not None:
            raise InputError("--blimp needs --suite blimp: name it, or leave out both")
        text = None
        if set(suites) & set(NEED_TEXT):
            if not sources and not self.training_data:
                why = "is no run" if self.run is None else "is a run whose prepared data is gone"
                raise InputError(
                    f"{self.argument} {why}, so there is no text to score it on. Give --data: a "
                    "prepared folder, or text files."
                )
            sources = sources or [*map(str, self.training_data)]
            text = open_text(sources, self.model.tokenizer, self.training_data)
        request = Request(self.model, rows, text, pairs, is_fast)
        check_request(suites, request)
        return request

    def run_suites(
        self,
        suites: Sequence[str],
        request: Request,
        tell: Callable[[str], None] = lambda line: None,
    ) -> list[SuiteResult]:
        """The results of all suites, in order; their settings tell whether they are fast."""
        results: list[SuiteResult] = []
        for name in suites:
            with telling(request.model, name, tell):
                results.append(SUITES[name](request))
        return [
            replace(result, settings={**result.settings, "fast": request.is_fast})
            for result in results
        ]

    @cached_property
    def model_facts(self) -> dict[str, Any]:
        """Name, hash, size and tokenizer of the model."""
        return {
            "name": self.argument,
            "sha256": hash_model(self.folder),
            "num_parameters": count_parameters(self.model.model.config).total,
            "tokenizer_fingerprint": self.model.tokenizer.fingerprint,
        }

    @cached_property
    def circumstances(self) -> dict[str, Any]:
        """When and where this is, found once: what is printed is what is written."""
        return {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": describe_environment(),
        }

    def describe(self, results: Sequence[SuiteResult]) -> dict[str, Any]:
        """All about this evaluation as plain values, ready for JSON."""
        return {
            "format": FORMAT,
            "model": self.model_facts,
            "suites": [{**to_plain(asdict(result)), **self.circumstances} for result in results],
        }

    def write(self, results: Sequence[SuiteResult], out: Path | None) -> list[Path]:
        """Writes to `out` and, for a run, to its ``evaluation.json``; returns what was written.

        In the latter other results of the same model stay; see `_identify`.
        """
        described, written = self.describe(results), list[Path]()
        if self.run is not None:
            path = self.run / RESULTS_NAME
            new = {_identify(suite) for suite in described["suites"]}
            kept = [suite for suite in self._read_earlier(path) if _identify(suite) not in new]
            write_json(path, {**described, "suites": [*kept, *described["suites"]]})
            written.append(path)
        if out is not None:
            write_json(out, described)
            written.append(out)
        return written

    def _read_earlier(self, path: Path) -> list[dict[str, Any]]:
        """The suites of an earlier evaluation of the same weights; none if it cannot be read."""
        try:
            earlier = read_json(path, _MAX_RESULTS_BYTES)
            is_same = earlier["model"]["sha256"] == self.model_facts["sha256"]
            suites = earlier["suites"] if is_same and earlier["format"] == FORMAT else []
            return [suite for suite in suites if hash(_identify(suite)) is not None]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []


def _find_pairs(given: str | None) -> str:
    """The folder of minimal pairs: as given, else where the environment says that corpora are.

    Raises:
        InputError: neither says where.
    """
    corpora = os.environ.get(CORPORA)
    if given is None and corpora is None:
        raise InputError(
            f"the suite blimp needs --blimp: a folder of minimal pairs, or {CORPORA} in the"
            " environment: a folder that holds one called blimp"
        )
    return given or str(Path(corpora or "") / "blimp")


def _identify(suite: dict[str, Any]) -> tuple[str, str, bool]:
    """What is asked of a model: a result takes the place of an earlier one of the same question."""
    return suite["suite"], suite["data"]["fingerprint"], suite["settings"].get("fast")


def find_run(argument: str) -> Path | None:
    """The run directory that a model was named by, if it was."""
    run = Path(argument)
    return run if (run / CONFIG_NAME).is_file() and not is_fine_tuning(run) else None


def find_training_data(argument: str) -> list[Path]:
    """The prepared folders that a run was trained on; none if it is no run, or one is gone."""
    run = find_run(argument)
    if run is None:
        return []
    try:
        folders = [*name_prepared(read_provenance(run)).values()]
    except CheckpointError:
        return []
    return folders if all(map(is_prepared, folders)) else []


def choose_rows(argument: str, longest: int) -> DataConfig:
    """The rows of the run's validations, or the usual ones, as far as the model has positions."""
    run = find_run(argument)
    rows = load_run_config(run, {}).valid_rows if run else DataConfig()
    return replace(rows, max_seq_length=min(rows.max_seq_length, longest))


def hash_model(folder: Path) -> str:
    """sha256 over configuration and weights of a model folder, file by file."""
    digest = hashlib.sha256()
    for path in sorted([folder / CONFIG, *folder.glob("*.safetensors")]):
        digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest()


def to_plain(value: Any) -> Any:
    """Values as JSON has them: no tuples, and null for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
