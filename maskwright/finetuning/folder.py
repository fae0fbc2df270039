"""The run directory of ``maskwright finetune``: its lock, what was asked for, how it resumes.

``OUT/provenance.json`` is written first and says all that the scores depend on. ``OUT/checkpoints``
holds the finished seeds, and is removed when everything else is written, so a run is finished when
it has a model and no checkpoints. Every file is replaced as a whole, so a process may be killed at
any moment.
"""

import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from maskwright.config import from_mapping, to_mapping, write_yaml
from maskwright.errors import ConfigError, InputError
from maskwright.files import (
    check_new_folder,
    hash_file,
    read_json,
    temporary_path,
    write_json,
    write_text,
)
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.files import ExampleFiles, TaskFiles
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

RESULTS_NAME = "results.json"
_ENDED_NAME = ".checkpoints.ended"  # while they are deleted
_MAX_BYTES = 64 << 20
_WEIGHTS = ("*.safetensors", "config.json", "tokenizer.json")


class TerminatedError(BaseException):
    """SIGTERM came."""


@dataclass(frozen=True)
class Asked:
    """All that the scores of a run depend on.

    Attributes:
        model: the model folder that it begins with.
        control: whether a random encoder is scored as well.
    """

    model: Path
    files: ExampleFiles
    config: FinetuneConfig
    control: bool = False

    def to_plain(self) -> dict[str, Any]:
        """Return what provenance.json holds, but for the hashes."""
        files = {name: _plain(value) for name, value in asdict(self.files).items()}
        config = to_mapping(self.config)
        return {
            "model": str(self.model),
            "files": files,
            "finetune": config,
            "control": self.control,
        }

    def hash_inputs(self) -> dict[str, str]:
        """Return the sha256 of every file that is read, by its path."""
        examples = (self.files.train, self.files.valid, self.files.test)
        weights = (path for name in _WEIGHTS for path in sorted(self.model.glob(name)))
        paths = [path for path in (*examples, *weights) if path is not None]
        return {str(path): hash_file(path) for path in paths}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def read_resumed(run: Path) -> Asked:
    """Return what a run directory says that was asked for.

    Raises:
        InputError: it is no run of fine-tuning, or its provenance.json is damaged.
    """
    if not is_fine_tuning(run):
        raise InputError(
            f"--resume {run} is not a run directory of maskwright finetune. Check the path."
        )
    asked = read_asked(run)
    try:
        given = dict(asked["files"])
        for name in ("train", "valid", "test"):
            given[name] = None if given[name] is None else Path(given[name])
        kind = ExampleFiles
        if "task" in given:
            kind, given["metrics"] = TaskFiles, tuple(given["metrics"])
        given["columns"] = dict(given["columns"])
        config = from_mapping(FinetuneConfig, asked["finetune"])
        return Asked(Path(asked["model"]), kind(**given), config, bool(asked["control"]))
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise InputError(
            f"{run / PROVENANCE_NAME} does not say what was asked for ({error}). Start the run "
            "again with its own flags and another --out."
        ) from None


@contextmanager
def owning_run(out: Path, asked: Asked, say: Callable[[str], None]) -> Generator[bool]:
    """Make and lock the run directory; yield whether anything is left to do there.

    A directory that was made for this and in which nothing was written goes away again.

    Raises:
        InputError: another process trains there, or it holds something else.
    """
    if out.exists() and not out.is_dir():
        check_new_folder(out)
    was_there = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with locking_run(out, say):
            yield _check_begun(out, asked)
    finally:
        if not was_there:
            with suppress(OSError):  # not empty
                out.rmdir()


def _check_begun(out: Path, asked: Asked) -> bool:
    """Return True if a directory is new, or holds an unfinished run of the same command."""
    first = temporary_path(out / PROVENANCE_NAME)
    if not is_fine_tuning(out):
        if any(path != first for path in out.iterdir()):
            check_new_folder(out)
        return True
    is_finished = (out / MODEL_NAME).is_dir() and not (out / CHECKPOINTS_NAME).exists()
    if not is_finished and not has_checkpoint(out):
        return True  # nothing is lost, whatever is asked for now
    begun = read_asked(out)
    name, old, new = next(_list_differences(begun, asked), ("", None, None))
    if name and is_finished:
        check_new_folder(out)
    if name:
        raise InputError(
            f"{out} holds finished seeds of a run with {name} = {old}, not {new}. Repeat the "
            f"command as it was (maskwright finetune --resume {out}), or choose another --out."
        )
    if is_finished:
        shutil.rmtree(out / _ENDED_NAME, ignore_errors=True)
    return not is_finished


def _list_differences(begun: Mapping[str, Any], asked: Asked) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old and new value of what is not as it was; of files, their hashes."""
    old, new = dict(_flatten(begun)), dict(_flatten(asked.to_plain()))
    for name, value in new.items():
        if old.get(name, value) != value or name not in old:
            yield name, old.get(name), value
    hashes = begun.get("sha256")
    for path, found in asked.hash_inputs().items():
        known = hashes.get(path) if isinstance(hashes, Mapping) else None
        if known != found:
            yield f"the sha256 of {path}", str(known)[:8], found[:8]


def _flatten(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and name != "columns":
            yield from _flatten(value)
        else:
            yield name, value


def begin_run(out: Path, asked: Asked, config: FinetuneConfig, say: Callable[[str], None]) -> None:
    """Write provenance.json and config.yaml, or add to them that the run is resumed.

    Args:
        config: with what was chosen for this task and model.
    """
    if has_checkpoint(out):
        provenance = read_json(out / PROVENANCE_NAME, _MAX_BYTES)
        earlier = provenance.get("resumptions", [])
        new = {n: v for n, v in describe_environment().items() if v != provenance.get(n)}
        write_json(out / PROVENANCE_NAME, {**provenance, "resumptions": [*earlier, new]})
        return
    if is_fine_tuning(out):
        say(
            f"{out} holds a run that ended before its first seed was finished; this one replaces it"
        )
        shutil.rmtree(out / CHECKPOINTS_NAME, ignore_errors=True)
        (out / METRICS_NAME).unlink(missing_ok=True)
    facts = {"asked": {**asked.to_plain(), "sha256": asked.hash_inputs()}}
    write_json(out / PROVENANCE_NAME, {**describe_environment(), **facts})
    write_text(out / CONFIG_NAME, write_yaml(config))


def end_run(out: Path) -> None:
    """Remove the checkpoints, by one rename first: the run is finished, or it is not."""
    ended = out / _ENDED_NAME
    shutil.rmtree(ended, ignore_errors=True)
    if (out / CHECKPOINTS_NAME).is_dir():
        (out / CHECKPOINTS_NAME).rename(ended)
    shutil.rmtree(ended, ignore_errors=True)


@contextmanager
def raising_on_sigterm() -> Generator[None]:
    """Raise `TerminatedError` on SIGTERM; outside the main thread it does nothing."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TerminatedError

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def describe_stop(out: Path, number: signal.Signals) -> str:
    """Return how to go on with a run that a signal stopped."""
    if not is_fine_tuning(out):
        return f"stopped by {number.name} before the training began"
    return (
        f"stopped by {number.name}; finished seeds are kept. Go on with the same command, or with "
        f"maskwright finetune --resume {out}"
    )
