"""A run directory: locking, configuration, provenance.

Configuration and provenance are published without folders and credentials.
"""

import os
import re
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NoReturn, NotRequired, TypedDict, cast

from maskwright.config import (
    Plain,
    fields_of,
    from_mapping,
    merge,
    nested,
    read_yaml,
    to_mapping,
    write_yaml,
)
from maskwright.errors import CheckpointError, ConfigError, InputError, find_nearest, show_value
from maskwright.files import (
    JsonObject,
    as_mapping,
    locking_folder,
    read_json,
    temporary_path,
    write_json,
    write_text,
)
from maskwright.provenance import describe_environment
from maskwright.runs.config import PretrainConfig, put_over
from maskwright.shards.manifest import MANIFEST_NAME
from maskwright.shards.remote import is_remote
from maskwright.train.config import MILESTONE

_HUB = "hf:"
_LOCAL_SCHEMES = ("file:", "local:", "memory:")
_LOCAL = re.compile(r"[/.~]")
_MAX_DEPTH = 8
_CPU = "cpu"  # in provenance: words that may have a slash, "w/ Radeon Graphics", but are no path


def shorten_path(path: str) -> str:
    """Return the published form of a path: its last component, because its folders are private.

    Hub names are kept whole; a URL loses user and query, which may be credentials.
    """
    if is_remote(path):
        url = re.split(r"[?#]", path)[0]
        url = re.sub(r"(?<=://)[^/]*@", "", url)
        is_local = url.lower().startswith(_LOCAL_SCHEMES) or ":///" in url  # no host
        return PurePath(url).name if is_local else url
    if path.startswith(_HUB):
        name, mark, field = path.removeprefix(_HUB).partition("#")
        return f"{_HUB}{PurePath(name).name if _LOCAL.match(name) else name}{mark}{field}"
    return PurePath(path).name or path


def shorten_paths(values: Mapping[str, Any]) -> Plain:
    """Return the plain values of a configuration with all paths in their published form."""
    shortened: Plain = dict(values)
    if values.get("init_from"):  # it brings the tokenizer; the path is the cache of its download
        shortened = merge(shortened, nested("tokenizer.path", None))
    for info in fields_of(PretrainConfig):
        if info.is_path and (found := _find(shortened, info.name)):
            shortened = merge(shortened, nested(info.name, _shorten_all(found)))
    return shortened


def shorten_provenance(value: Any, depth: int = 0, key: object = "") -> Any:
    """Return provenance.json, or its value of a key, with paths in published form, without diff."""
    if isinstance(value, Mapping | list) and depth >= _MAX_DEPTH:
        return show_value(cast(object, value))
    if isinstance(value, Mapping):
        return {
            show_value(name): _count_lines(item)
            if name == "diff"
            else shorten_provenance(item, depth + 1, name)
            for name, item in cast(Mapping[Any, Any], value).items()
        }
    if isinstance(value, list):
        return [shorten_provenance(item, depth + 1, key) for item in cast(list[Any], value)]
    if not isinstance(value, str):
        return value
    flag, mark, given = value.partition("=") if value.startswith("--") else ("", "", value)
    is_path = _LOCAL.match(given) or ("/" in given and key != _CPU)
    return f"{flag}{mark}{shorten_path(given)}" if is_path else value


def _count_lines(diff: Any) -> str:
    return f"{len(diff.splitlines()):,} lines" if isinstance(diff, str) else ""


def _find(values: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        values = as_mapping(values).get(name)
    return values


def _shorten_all(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shorten_all(item) for item in cast(Sequence[Any], value)]
    return shorten_path(value) if isinstance(value, str) else value


CONFIG_NAME = "config.yaml"
REPORT_NAME = "report.html"
METRICS_NAME = "metrics.jsonl"
CHECKPOINTS_NAME = "checkpoints"
STOPPED_NAME = "seed"  # in the checkpoints: the seed of fine-tuning that a signal stopped
MODEL_NAME = "model"
PROVENANCE_NAME = "provenance.json"
INIT_FROM = "init_from"  # in provenance.json: the model that the run began with
MICRO_BATCH = "micro_batch_tokens"  # in its entry on the computation
TEACHER = "teacher"  # and the model that it learns from
RUNS_NAME = "runs"  # the default of --runs-dir
# Sections of the configuration that may change when a run is resumed.
_CHANGEABLE = ("train", "optim", "evaluate")
_TRACKER_FOLDERS = ("tensorboard", "trackers")


class Origin(TypedDict):
    """A model that a run uses: its name as given, its folder and its files' hashes.

    `vectors` are the `VectorSettings` of a folder of sentence-transformers, which the run's own
    folders state again.
    """

    name: str
    folder: str
    sha256: dict[str, str]
    tokenizer_fingerprint: str
    vectors: NotRequired[JsonObject]


class RunFacts(TypedDict):
    """The entries of a pretraining run in provenance.json, beside its environment.

    Attributes:
        origins: the fields that are not defaults, by the origin of their values: recipe, file,
            flag, data, model, budget. Empty for a whole configuration.
        reasons: what the rules decided and why, a line by its subject (`Settled`).
        corpus: the fingerprint of the prepared data, and the entries of its manifest on the text.
        prepared_data: its folder, or its folders by name.
        config: the configuration, with which an edited config.yaml is compared.
        computation: what the speed and the last bits of a run depend on: device, dtype of matrix
            products, ranks, threads of a rank, whether it is compiled and why, and the tokens of a
            micro-batch unless it is the whole step.
    """

    recipe: str | None
    origins: Mapping[str, list[str]]
    reasons: Mapping[str, str]
    num_parameters: int
    corpus: JsonObject
    prepared_data: str | dict[str, str]
    tokenizer_fingerprint: str
    config: Plain
    computation: Mapping[str, str | int]
    init_from: NotRequired[Origin]
    teacher: NotRequired[Origin]


def check_new(run: Path) -> None:
    """Raise InputError unless a run directory can be created, or its run ended before its first
    checkpoint.
    """
    existing = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise InputError(f"{run} cannot be created: {existing} is not a writable folder")
    if run.exists() and any(run.iterdir()) and not _is_dead(run):
        raise InputError(
            f"{run} exists already: choose another --name, or resume it with --resume {run} (in a "
            "job that may be restarted: --auto-resume)"
        )


def suggest_run(path: Path) -> str:
    """Return ``; did you mean runs/mine?`` for a missing `path`, if a similar run exists."""
    if path.exists():
        return ""
    if (Path(RUNS_NAME) / path).exists():
        return f"; did you mean {Path(RUNS_NAME) / path}?"
    folder = path.parent if path.parent != Path() else Path(RUNS_NAME)
    names = [run.name for run in folder.iterdir() if run.is_dir()] if folder.is_dir() else []
    nearest = find_nearest(path.name, names)
    return f"; did you mean {folder / nearest}?" if nearest else ""


def is_fine_tuning(run: Path) -> bool:
    """Return True if ``maskwright finetune`` wrote the run directory."""
    return "finetune" in read_asked(run)


def find_run(argument: str | Path) -> Path | None:
    """Return the pretraining run that an argument names; None if it names something else."""
    run = Path(argument)
    return run if (run / CONFIG_NAME).is_file() and not is_fine_tuning(run) else None


def read_example_files(run: Path) -> Mapping[str, Any]:
    """Return the files of a fine-tuning run and their layout; empty for anything else."""
    return read_asked(run).get("files", {})


def read_asked(run: Path) -> Mapping[str, Any]:
    """Return the arguments of ``maskwright finetune`` in a run directory; empty for others."""
    try:
        asked = read_json(run / PROVENANCE_NAME)["asked"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return as_mapping(asked)


def check_pretraining(run: Path) -> None:
    """Raise InputError unless `run` is a run directory of pretraining."""
    if not (run / CONFIG_NAME).is_file():
        raise InputError(
            f"{run} is not a run directory: it holds no {CONFIG_NAME}{suggest_run(run) or '.'}"
        )
    if is_fine_tuning(run):
        raise InputError(f"{run} is a run of fine-tuning: see its results.json and report.html.")


def has_checkpoint(run: Path) -> bool:
    """Return True if the run can be resumed."""
    folders = (run / CHECKPOINTS_NAME, run / CHECKPOINTS_NAME / STOPPED_NAME)
    # The second pattern: the process died while it replaced a checkpoint.
    patterns = ("step_*", ".step_*.old")
    return any(path for folder in folders for name in patterns for path in folder.glob(name))


def _is_dead(run: Path) -> bool:
    """Return True if a run ended without a checkpoint and a model."""
    config, has_model = run / CONFIG_NAME, (run / MODEL_NAME).exists()
    # A run that was killed while it wrote its first file has only the temporary file.
    is_run = config.is_file() or temporary_path(config).is_file()
    return is_run and not has_checkpoint(run) and not has_model


@contextmanager
def locking_run(run: Path, report: Callable[[str], None]) -> Generator[None]:
    """Lock `run`; raise InputError if another process trains in it."""

    def refuse() -> NoReturn:
        raise InputError(f"{run} is being trained by another process")

    with locking_folder(run, refuse, report):
        yield


def begin_run(
    run: Path, config: str, facts: Mapping[str, object], report: Callable[[str], None]
) -> None:
    """Write config.yaml and provenance.json; remove files of a run without checkpoints.

    Raises:
        InputError: `run` is no longer new.
    """
    check_new(run)
    if (run / CONFIG_NAME).exists():
        report(f"{run} holds a run that ended before its first checkpoint; this one replaces it")
        (run / METRICS_NAME).unlink(missing_ok=True)
        for folder in (*map(run.joinpath, _TRACKER_FOLDERS), *run.glob(f"{MILESTONE}*")):
            shutil.rmtree(folder, ignore_errors=True)
    write_text(run / CONFIG_NAME, config)
    write_json(run / PROVENANCE_NAME, {**describe_environment(), **facts})


def read_provenance(run: Path) -> JsonObject:
    """Read provenance.json; raise CheckpointError if it is missing or damaged."""
    path = run / PROVENANCE_NAME
    try:
        values = read_json(path)
        name_prepared(values)
        if not isinstance(values.get("resumptions", []), list):
            raise TypeError("resumptions is not a list")
        if not isinstance(values["corpus"]["fingerprint"], str):
            raise TypeError("corpus.fingerprint is not text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            f"{path} cannot be read ({reason}), so the data of the run is not known; start it again"
        ) from None
    return values


def find_micro_batch(provenance: Mapping[str, Any]) -> int | None:
    """Return the tokens of the last micro-batch of a run, from its provenance.json, or None."""
    entries = [provenance, *provenance.get("resumptions", [])]
    found = [as_mapping(as_mapping(entry).get("computation")).get(MICRO_BATCH) for entry in entries]
    return next((tokens for tokens in reversed(found) if isinstance(tokens, int)), None)


def name_prepared(provenance: Mapping[str, Any]) -> dict[str, Path]:
    """Return the prepared folders of a run by name, from its provenance.json.

    Raises:
        TypeError, KeyError: the entry is invalid or missing.
    """
    found: Any = provenance["prepared_data"]
    if isinstance(found, str):
        return {Path(found).name: Path(found)}
    if not as_mapping(found):
        raise TypeError("prepared_data is neither a path nor paths by name")
    return {name: Path(path) for name, path in found.items()}


def is_prepared(folder: Path) -> bool:
    """Return True if ``maskwright prepare`` wrote `folder`."""
    return (folder / MANIFEST_NAME).is_file()


def list_prepared(run: Path) -> dict[str, Path]:
    """Return the prepared folders of a run by name; empty if they are unknown or one is gone."""
    try:
        folders = name_prepared(read_provenance(run))
    except CheckpointError:
        return {}
    return folders if all(map(is_prepared, folders.values())) else {}


def load_run_config(run: Path, overrides: Mapping[str, Any]) -> PretrainConfig:
    """Return the configuration of a run, overridden by other values; raise if one cannot change."""
    path = run / CONFIG_NAME
    if not path.is_file():
        raise CheckpointError(
            f"{run} is not a run directory: it holds no {CONFIG_NAME}{suggest_run(run)}"
        )
    if is_fine_tuning(run):
        remedy = f"To resume it: maskwright finetune --resume {run}"
        raise CheckpointError(f"{run} is a run of fine-tuning, not of pretraining. {remedy}")
    check_changes(overrides)
    return from_mapping(PretrainConfig, put_over(read_yaml(path), overrides))


def load_recorded_config(run: Path) -> PretrainConfig:
    """Return the configuration that a run last had, though config.yaml may have been edited.

    Raises:
        CheckpointError: there is no such run, or its provenance.json is damaged.
    """
    recorded = read_provenance(run).get("config")
    # The runs of earlier versions did not record it.
    return from_mapping(PretrainConfig, recorded) if recorded else load_run_config(run, {})


def list_changes(begun: PretrainConfig, asked: PretrainConfig) -> Plain:
    """Return the values of `asked` that differ from the configuration of a run, nested."""
    old, new = to_mapping(begun), to_mapping(asked)
    changes: Plain = {}
    for section, values in new.items():
        if fields := as_mapping(values):
            different = {name: v for name, v in fields.items() if v != old[section][name]}
            if different:
                changes[section] = different
        elif values != old[section]:
            changes[section] = values
    return changes


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise ConfigError unless only values of train, optim and evaluate change."""
    for section, values in changes.items():
        fields = as_mapping(values)
        names = list(fields)
        fixed = names if section not in _CHANGEABLE else [n for n in names if n == "name"]
        if fixed or not names:
            field = ".".join([section, *fixed[:1]])
            value = fields[fixed[0]] if fixed else values
            rule = "cannot change when a run is resumed"
            remedy = "Only train.*, optim.* and evaluate.* values can, but not optim.name."
            raise ConfigError(field, value, rule, remedy)


def record_resumption(
    run: Path,
    config: PretrainConfig,
    step: int,
    changes: Mapping[str, Any],
    computation: Mapping[str, str | int],
) -> None:
    """Write the new configuration, and add the step, the changes, and what differs of environment
    and `computation` from the start of the run, to provenance.json.
    """
    provenance = read_provenance(run)
    now = {**describe_environment(), "computation": computation}
    new = {name: value for name, value in now.items() if value != provenance.get(name)}
    resumption = {**new, "step": step, "changes": changes}
    earlier = provenance.get("resumptions", [])
    latest = {"config": to_mapping(config), "resumptions": [*earlier, resumption]}
    write_json(run / PROVENANCE_NAME, {**provenance, **latest})
    write_text(run / CONFIG_NAME, write_yaml(config))
