"""Evaluation of one model: find its data, run the suites, write the results."""

import hashlib
import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

from maskwright.console import Pulse, tell
from maskwright.data.config import MIN_ROW_LENGTH, DataConfig
from maskwright.errors import InputError
from maskwright.evaluation.data import (
    EvaluationText,
    describe_partial_text,
    open_text,
    read_named_pairs,
)
from maskwright.evaluation.suite_labels import TunedModel
from maskwright.evaluation.suites import (
    GLUE_SUITE,
    Request,
    Suite,
    before_each_pass,
    load_suite,
    parse_names,
)
from maskwright.files import check_new_file, hash_file, write_json
from maskwright.finetuning.glue import evaluate_glue
from maskwright.inference.embed import Embedder, Pooling
from maskwright.inference.text_model import TextModel
from maskwright.model.config import GENERATOR
from maskwright.model_folder.folder import CONFIG
from maskwright.objectives.objective import count_parameters_of
from maskwright.provenance import describe_environment
from maskwright.runs.evaluation_file import (
    FORMAT,
    RESULTS_NAME,
    EvaluationResult,
    ModelFacts,
    SuiteRecord,
    SuiteResult,
    merge_earlier,
    record_result,
)
from maskwright.runs.find_model import PREFIX, find_masked_model, find_model_folder, is_hub_name
from maskwright.runs.run_directory import MODEL_NAME, find_run, list_prepared, load_run_config
from maskwright.train.config import MILESTONE, FixedPrecision
from maskwright.train.device import describe_computation

CORPORA = "MASKWRIGHT_DATA"
# By flag: the suites that use it.
_USED_BY = {
    "precision": ("blimp",),
    "pooling": ("retrieval", "sts"),
    "blimp": ("blimp",),
    "babylm": ("blimp",),
    "choices": ("blimp",),
    "rerank": ("retrieval",),
    "seq-length": ("mlm",),
}


def evaluate(
    folder: str | Path,
    *,
    suite: str | Sequence[str] = ("mlm", "fill"),
    data: str | Path | Sequence[str | Path] = (),
    blimp: str | Path | None = None,
    babylm: str | Path | None = None,
    choices: str | Path | None = None,
    rerank: str | Path | None = None,
    pooling: Pooling | None = None,
    precision: FixedPrecision = "fp32",
    out: str | Path | None = None,
    fast: bool = False,
    seq_length: int | None = None,
    device: str | None = None,
) -> EvaluationResult:
    """Score a model::

        found = evaluate("runs/mine", suite="mlm")
        scores = {score["name"]: score["value"] for score in found["suites"][0]["scores"]}

    Args:
        folder: a run directory, a model folder, or ``hf:NAME``.
        suite: names of `maskwright.evaluation.suites.SUITES`, or ``glue`` alone.
        data: a prepared folder or its URL, or text files; default: the held-out text of the run.
        blimp: the folder of minimal pairs, for the suite ``blimp``.
        babylm: the folder ``results`` of a BabyLM submission, for the predictions of ``blimp``.
        choices: a new JSON file for the result of each pair of ``blimp``: 1, 0, or 0.5 for a tie.
        rerank: a model of ``finetune --task ranking``, for the suite ``retrieval``.
        pooling: ``mean`` or ``cls``, for ``retrieval`` and ``sts``; default: as in `Embedder`.
        precision: the precision of the matrix products of ``blimp``.
        out: a new JSON file for the results; a run also gets them in its ``evaluation.json``.
        fast: score an eighth of the text or less; train for one epoch in ``glue``.
        seq_length: tokens per row; default: the row length of the run, else 128.
        device: the device, such as ``cpu`` or ``cuda``; default: a GPU if there is one.

    Returns:
        the record of ``evaluation.json``; for ``glue`` the results of each task by name.

    Raises:
        MaskwrightError: an input is wrong; the message is one line.
    """
    sources, path = list_sources(data), None if out is None else Path(out)
    _check_sizes(seq_length, out, choices)
    names = parse_names(suite)
    others = {"blimp": blimp, "babylm": babylm, "rerank": rerank}
    _check_flags(names, precision, pooling, **others, choices=choices, seq_length=seq_length)
    if GLUE_SUITE in names:
        model = find_model_folder(folder)
        tasks = evaluate_glue(model, sources, device, path, is_fast=fast, tell=tell)
        return cast(EvaluationResult, tasks)  # an overload would overlap, as "glue" is a str
    suites = [load_suite(name) for name in names]
    evaluation = _open(os.fspath(folder), suites, device, pooling)
    request = evaluation.make_request(suites, sources, seq_length, *others.values(), is_fast=fast)
    request = replace(request, precision=precision, choices=choices and Path(choices))
    if request.text is not None and (line := describe_partial_text(request.text.data)):
        tell(line)
    described = evaluation.describe(evaluation.run_suites(suites, request))
    _write_results(described, evaluation.run, path)
    return described


def _check_sizes(seq_length: int | None, *files: str | Path | None) -> None:
    """Raise InputError if rows are too short, or a file to write exists already."""
    check_row_length(seq_length)
    for file in filter(None, files):
        check_new_file(Path(file))


def _open(
    folder: str, suites: Sequence[Suite], device: str | None, pooling: Pooling | None
) -> "Evaluation":
    """Open the model that suites score; for vectors alone it needs no head."""
    needs = {suite.needs for suite in suites}
    if needs - {"files", "labels"}:
        found = find_masked_model(folder, tell)
        return Evaluation(folder, found, TextModel(found, device))
    found = find_model_folder(folder)
    if "labels" in needs:
        return Evaluation(folder, found, TunedModel(found, device))
    return Evaluation(folder, found, Embedder(folder, device, pooling))


def _write_results(described: EvaluationResult, run: Path | None, path: Path | None) -> None:
    if path is not None:
        write_json(path, described)
    if run is not None:  # which may belong to somebody else
        write_json(run / RESULTS_NAME, merge_earlier(run / RESULTS_NAME, described))


def list_sources(data: str | Path | Sequence[str | Path]) -> list[str]:
    """Return one path or several as a list of strings."""
    return [os.fspath(one) for one in ([data] if isinstance(data, str | Path) else data)]


def check_row_length(seq_length: int | None) -> None:
    """Raise an InputError if rows are too short."""
    if seq_length is not None and seq_length < MIN_ROW_LENGTH:
        raise InputError(f"--seq-length = {seq_length} must be at least {MIN_ROW_LENGTH}")


def _check_flags(
    suites: Sequence[str], precision: str, pooling: str | None, **others: object
) -> None:
    """Raise an InputError for an unknown precision, and for a flag without a suite that uses it."""
    if precision not in get_args(FixedPrecision):
        rule = f"must be {' or '.join(get_args(FixedPrecision))}"
        raise InputError(f"--precision = {precision} {rule}")
    lowered = None if precision == "fp32" else precision
    for name, value in {"precision": lowered, "pooling": pooling, **others}.items():
        name = name.replace("_", "-")
        if value is not None and {*_USED_BY[name]}.isdisjoint(suites):
            given, needed = ",".join(suites), " or ".join(_USED_BY[name])
            rule = f"--{name} has no effect with --suite {given}: --{name} needs --suite {needed}"
            raise InputError(f"{rule}. Remove it.")


class Evaluation:
    """A model to score, and its run directory, if any.

    Args:
        argument: the name that the user gave.
        folder: its model folder.
        model: the model, opened for the suites that score it.

    Attributes:
        run: `argument` if it is a run directory, else None.
    """

    def __init__(self, argument: str, folder: Path, model: TextModel[Any]) -> None:
        self.argument, self.folder, self.model = argument, folder, model
        self.run = find_run(argument)

    def make_request(
        self,
        suites: Sequence[Suite],
        sources: Sequence[str],
        max_seq_length: int | None = None,
        blimp: str | Path | None = None,
        babylm: str | Path | None = None,
        rerank: str | Path | None = None,
        *,
        is_fast: bool = False,
        packed: bool | None = None,
    ) -> Request:
        """Read the data of the suites, and check it before the first suite begins.

        Args:
            sources: prepared folders or text files; default: the run's own data.
            max_seq_length, packed: fields of `DataConfig`; default: the run's.
            blimp, babylm, rerank: as in `evaluate`.

        Raises:
            InputError: there is too little data, or the row length or a sentence of a pair exceeds
                the model's maximum length.
            ShardError: data was prepared with another tokenizer.
        """
        rows = choose_rows(self.argument, self.model.longest)
        rows = replace(
            rows,
            max_seq_length=max_seq_length or rows.max_seq_length,
            packed=rows.packed if packed is None else packed,
        )
        if rows.max_seq_length > self.model.longest:
            raise InputError(
                f"--seq-length = {max_seq_length} is more than the {self.model.longest} positions "
                f"of the model. Give at most {self.model.longest}."
            )
        needs = {suite.needs for suite in suites}
        pairs = read_named_pairs(_find_pairs(blimp)) if "pairs" in needs else None
        if babylm is not None and is_fast:
            raise InputError("--babylm needs --suite blimp, without --fast.")
        if needs == {"pairs"} and sources:
            raise InputError("--data has no effect with --suite blimp alone. Remove it.")
        for suite in suites if len(suites) > 1 else ():
            if suite.needs in ("files", "labels"):
                raise InputError(
                    f"--suite {suite.name} cannot be combined with other suites, because the format"
                    " of its --data differs. Run it in a separate command."
                )
        text = self._open_text(sources) if "text" in needs else None
        submission = None if babylm is None else locate_submission(Path(babylm), self.argument)
        files = sources if needs & {"files", "labels"} else ()
        ranker = None if rerank is None else find_model_folder(rerank)
        request = Request(self.model, rows, text, pairs, is_fast, submission, files, ranker)
        for suite in suites:
            suite.check(request)
        return request

    def _open_text(self, sources: Sequence[str]) -> EvaluationText:
        training_data = find_training_data(self.argument)
        if not sources and not training_data:
            why = "no pretraining run" if self.run is None else "a run without its prepared data"
            raise InputError(
                f"{self.argument} is {why}, so there is no text to score it on. Give a "
                "prepared folder or text files with --data."
            )
        chosen = sources or [*map(str, training_data)]
        return open_text(chosen, self.model.tokenizer, training_data)

    def run_suites(self, suites: Sequence[Suite], request: Request) -> list[SuiteResult]:
        """Return the results of all suites, in order."""
        results: list[SuiteResult] = []
        for suite in suites:
            with reporting_progress(request.model, suite.name):
                results.append(suite.score(request))
        return results

    def find_facts(self) -> ModelFacts:
        """Return the name, hash, size and tokenizer of the model."""
        return {
            "name": self.argument,
            # Of a run always the same, so that suites of its other model do not replace these.
            "sha256": hash_model(self.run / MODEL_NAME if self.run else self.folder),
            "num_parameters": count_parameters_of(self.model.model),
            "tokenizer_fingerprint": self.model.tokenizer.fingerprint,
        }

    def describe(self, results: Sequence[SuiteResult]) -> EvaluationResult:
        """Return the content of an ``evaluation.json``."""
        date, environment = datetime.now(UTC).isoformat(timespec="seconds"), describe_environment()
        precisions = (result.settings.get("precision", "fp32") for result in results)
        computed = (describe_computation(found, self.model.device) for found in precisions)
        suites: list[SuiteRecord] = [
            {**record_result(result), "date": date, "environment": environment, "computation": by}
            for result, by in zip(results, computed, strict=True)
        ]
        return {"format": FORMAT, "model": self.find_facts(), "suites": suites}


@contextmanager
def reporting_progress(model: TextModel[Any], task: str) -> Generator[None]:
    """Report the progress of `task`: on a terminal immediately, otherwise if it takes long."""
    pulse, began = Pulse(tell), time.monotonic()
    if sys.stderr.isatty():
        pulse.say(f"{task} …")

    def beat() -> None:
        pulse.beat(f"{task}: {(time.monotonic() - began) / 60:.1f} minutes so far")

    with before_each_pass(model.model, beat):
        yield


def _find_pairs(given: str | Path | None) -> str:
    """Return the given folder, else ``$MASKWRIGHT_DATA/blimp``; raise InputError if neither is."""
    corpora = os.environ.get(CORPORA)
    if given is None and corpora is None:
        raise InputError(
            "the suite blimp needs --blimp DIR, a folder of minimal pairs. Or set "
            f"{CORPORA} to a folder that contains blimp"
        )
    return str(given or Path(corpora or "") / "blimp")


def locate_submission(results: Path, argument: str) -> Path:
    """Return the folder ``MODEL/REVISION/zero_shot/mlm`` of a model in a BabyLM submission."""
    name, _, revision = argument.partition("@") if is_hub_name(argument) else (argument, "", "")
    path = Path(name.removeprefix(PREFIX)).absolute()
    if path.name.startswith(MILESTONE) and not revision:
        path, revision = path.parent, path.name.removesuffix(f"-{GENERATOR}")
    return results / path.stem / (revision or "main") / "zero_shot" / "mlm"  # the stem, as BabyLM


def find_training_data(argument: str) -> list[Path]:
    """Return the prepared folders of a run; none if it is not a run or a folder is missing."""
    run = find_run(argument)
    return [*list_prepared(run).values()] if run else []


def choose_rows(argument: str, longest: int) -> DataConfig:
    """Return the rows of the run's validation, or the default, at most the model's maximum."""
    run = find_run(argument)
    rows = load_run_config(run, {}).valid_rows if run else DataConfig()
    return replace(rows, max_seq_length=min(rows.max_seq_length, longest))


def hash_model(folder: Path) -> str:
    """Return the sha256 of the configuration and weight files of a model folder."""
    digest = hashlib.sha256()
    for path in sorted([folder / CONFIG, *folder.glob("*.safetensors")]):
        digest.update(f"{path.name} {hash_file(path)}\n".encode())
    return digest.hexdigest()
