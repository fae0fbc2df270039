"""The run directory of ``maskwright finetune``: lock, provenance, resumption.

``OUT/provenance.json`` is written first and records everything that the scores depend on.
``OUT/checkpoints`` holds the finished seeds, and the seed that a signal stopped. It is removed
last: a run is finished if it has a model and no checkpoints. Every file is replaced atomically,
since the process may be killed.
"""

import shutil
import signal
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

from maskwright.config import Plain, from_mapping, to_mapping, write_yaml
from maskwright.errors import ConfigError, InputError, StoppedError
from maskwright.files import (
    as_mapping,
    check_new_folder,
    hash_file,
    read_json,
    temporary_path,
    write_json,
    write_text,
)
from maskwright.finetuning.config import TASKS, FinetuneConfig, Request, TaskFiles
from maskwright.finetuning.task import Tell
from maskwright.provenance import describe_environment
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    CONFIG_NAME,
    METRICS_NAME,
    MODEL_NAME,
    PROVENANCE_NAME,
    has_checkpoint,
    is_fine_tuning,
    locking_run,
    read_asked,
)
from maskwright.train.signals import TerminatedError

_ENDED_NAME = ".checkpoints.ended"  # the checkpoints while they are deleted
_MAX_BYTES = 64 << 20
_WEIGHTS = ("*.safetensors", "config.json", "tokenizer.json")


def _describe(request: Request) -> Plain:
    """Return a request as provenance.json records it, without the file hashes."""
    return {
        "model": str(request.model),
        "files": to_mapping(request.files),
        "finetune": to_mapping(request.config),
        "control": request.control,
        "teacher": None if request.teacher is None else str(request.teacher),
    }


def _hash_inputs(request: Request) -> dict[str, str]:
    examples = (request.files.train, request.files.valid, request.files.test)
    folders = [folder for folder in (request.model, request.teacher) if folder is not None]
    weights = (path for f in folders for name in _WEIGHTS for path in sorted(f.glob(name)))
    return {str(path): hash_file(path) for path in (*examples, *weights) if path is not None}


def read_request(run: Path) -> Request:
    """Return the request of an earlier run; raise InputError if `run` is none, or is damaged."""
    if not is_fine_tuning(run):
        raise InputError(
            f"--resume {run} is not a run directory of maskwright finetune. Check the path."
        )
    asked = read_asked(run)
    try:
        given = dict(asked["files"])
        for name in ("train", "valid", "test"):
            given[name] = None if given[name] is None else Path(given[name])
        given |= {"columns": dict(given["columns"]), "metrics": tuple(given["metrics"])}
        if given["task"] not in TASKS:
            raise ValueError(f"unknown task {given['task']}")
        config = from_mapping(FinetuneConfig, asked["finetune"])
        teacher = None if asked.get("teacher") is None else Path(asked["teacher"])
        model, control = Path(asked["model"]), bool(asked["control"])
        return Request(model, TaskFiles(**given), config, control, teacher)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise InputError(
            f"{run / PROVENANCE_NAME} does not record a valid request ({error}). Start the run "
            "again with its original flags and another --out."
        ) from None


@contextmanager
def owning_run(out: Path, request: Request, report: Tell) -> Generator[bool]:
    """Create and lock the run directory; yield True unless the run is finished.

    A directory that this function created is removed if it is still empty at the end.

    Raise InputError if another process trains in the directory, or it holds other files;
    StoppedError if SIGTERM was received; KeyboardInterrupt if SIGINT was received; the message
    explains how to resume.
    """
    if out.exists() and not out.is_dir():
        check_new_folder(out)
    was_there = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with _raising_on_sigterm(), locking_run(out, report):
            yield _is_due(out, request)
    except TerminatedError:
        raise StoppedError(_describe_stop(out, "SIGTERM")) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_describe_stop(out, "SIGINT")) from None
    finally:
        if not was_there:
            with suppress(OSError):  # not empty
                out.rmdir()


def _is_due(out: Path, request: Request) -> bool:
    """Return True if a directory is new, or holds an unfinished run of the same request."""
    first = temporary_path(out / PROVENANCE_NAME)
    if not is_fine_tuning(out):
        if any(path != first for path in out.iterdir()):
            check_new_folder(out)
        return True
    is_finished = (out / MODEL_NAME).is_dir() and not (out / CHECKPOINTS_NAME).exists()
    if not is_finished and not has_checkpoint(out):
        return True  # no finished seed and no step is kept here
    name, old, new = next(_list_differences(read_asked(out), request), ("", None, None))
    if name and is_finished:
        check_new_folder(out)
    if name:
        raise InputError(
            f"{out} holds trained seeds of a run with {name} = {old}, not {new}. Repeat the "
            f"original command (maskwright finetune --resume {out}), or choose another --out."
        )
    if is_finished:
        shutil.rmtree(out / _ENDED_NAME, ignore_errors=True)
    return not is_finished


def _list_differences(begun: Mapping[str, Any], request: Request) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old value and new value of each difference; files are compared by hash."""
    old = dict(_flatten(begun))
    for name, value in _flatten(_describe(request)):
        if name not in old or old[name] != value:
            yield name, old.get(name), value
    known = as_mapping(begun.get("sha256"))
    for path, found in _hash_inputs(request).items():
        if known.get(path) != found:
            yield f"the sha256 of {path}", str(known.get(path))[:8], found[:8]


def _flatten(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and name != "columns":
            yield from _flatten(cast("Mapping[str, Any]", value))
        else:
            yield name, value


def record_start(out: Path, request: Request, config: FinetuneConfig, report: Tell) -> None:
    """Write provenance.json and config.yaml (`config` is resolved), or record a resumption."""
    if has_checkpoint(out):
        provenance = read_json(out / PROVENANCE_NAME, _MAX_BYTES)
        earlier = provenance.get("resumptions", [])
        new = {n: v for n, v in describe_environment().items() if v != provenance.get(n)}
        write_json(out / PROVENANCE_NAME, {**provenance, "resumptions": [*earlier, new]})
        return
    if is_fine_tuning(out):
        report(
            f"{out} holds a run that ended before its first seed was finished; this run replaces it"
        )
        shutil.rmtree(out / CHECKPOINTS_NAME, ignore_errors=True)
        (out / METRICS_NAME).unlink(missing_ok=True)
    asked = {**_describe(request), "sha256": _hash_inputs(request)}
    write_json(out / PROVENANCE_NAME, {**describe_environment(), "asked": asked})
    write_text(out / CONFIG_NAME, write_yaml(config))


def record_end(out: Path) -> None:
    """Remove the checkpoints; a rename comes first, so that the run becomes finished atomically."""
    ended = out / _ENDED_NAME
    shutil.rmtree(ended, ignore_errors=True)
    if (out / CHECKPOINTS_NAME).is_dir():
        (out / CHECKPOINTS_NAME).rename(ended)
    shutil.rmtree(ended, ignore_errors=True)


@contextmanager
def _raising_on_sigterm() -> Generator[None]:
    """Raise `TerminatedError` on SIGTERM; do nothing outside the main thread."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _describe_stop(out: Path, name: str) -> str:
    if not is_fine_tuning(out):
        return f"stopped by {name} before training began"
    kept = "finished seeds and the steps of this one" if has_checkpoint(out) else "no step"
    return (
        f"stopped by {name}; saved: {kept}. Resume with the same command, or with "
        f"maskwright finetune --resume {out}"
    )
