"""The prepared folder: locking, progress, and the check of a finished folder.

``.work-ID`` holds the files of the stages. ID is a hash of input and configuration, so a process
of an earlier preparation that still runs writes to another folder. The files are valid only beside
their plan, which is written first and removed first. A folder with ``manifest.json`` is finished.
"""

import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from maskwright.errors import MaskwrightError, ShardError
from maskwright.files import find_link, locking_folder, read_json
from maskwright.preparation.work import PLAN_NAME
from maskwright.selection.tally import Tally
from maskwright.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    TOKENIZER_NAME,
    Manifest,
    read_manifest,
)
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.tokenizer import Tokenizer

SELECTION_NAME = "selection.json"  # what selection dropped and why
STDIN_NAME = "stdin-{}"  # a copy, of no known suffix; {} is the hash of its content
STDIN_TEMPORARY = ".stdin.txt.tmp"
_STDIN_NAMES, _WORK_NAMES = STDIN_NAME.format("?" * 16), ".work-*"
_MAX_TALLY_BYTES = 16 << 20

Report = Callable[[str], None]


@contextmanager
def making_folder(folder: Path, report: Report) -> Generator[None]:
    """Make `folder` and lock it; if another process prepares it, wait for that process.

    Raises:
        ShardError: `folder` is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ShardError(f"{folder} is a file, not a folder. Choose another --out.") from None
    busy = f"{folder} is being prepared by another process; waiting for it"
    with locking_folder(folder, lambda: report(busy), report):
        yield


def check_use(out: Path) -> None:
    """Raise ShardError if a folder holds anything but prepared data, finished or not, or links."""
    ours = (out / MANIFEST_NAME).is_file() or any(out.glob(_WORK_NAMES))
    if not ours and {*out.iterdir()} - {*out.glob(_STDIN_NAMES), out / STDIN_TEMPORARY}:
        raise ShardError(f"{out} holds files that are not prepared data. Choose another --out.")
    if link := find_link(out):
        raise ShardError(
            f"{link} is a symbolic link, so data would be written elsewhere. Link {out} as a whole,"
            " or choose another --out."
        )


def claim_finished(
    out: Path, fingerprint: str, source: Mapping[str, Any], report: Report
) -> Manifest | None:
    """Return the manifest of a finished folder; None if it is damaged and must be prepared again.

    Args:
        source: the `source` of the manifest that this run would write.

    Raises:
        ShardError: `out` holds other data.
    """
    manifest = read_manifest(out)
    if manifest.fingerprint != fingerprint:
        _remove_stdin(out)
        differences = list(_list_differences(manifest.source, source))
        raise ShardError(
            f"{out} was prepared from other text or with another configuration: "
            f"{', '.join(differences) or 'the content of the files differs'}. "
            "Choose another --out, or remove that folder."
        )
    damage = _find_damage(out, manifest)
    if damage is None:
        return manifest
    report(f"preparing {out} again, because it is damaged: {damage}")
    _renew_work(out)
    (out / MANIFEST_NAME).unlink()
    return None


def claim_work(out: Path, identity: str) -> Path:
    """Return the folder for the files of the stages, with the files of an interrupted run.

    Files of another input are removed.
    """
    work = out / _WORK_NAMES.replace("*", identity[:12])
    if not (work / PLAN_NAME).is_file():
        new = _renew_work(out)
        if not (out / MANIFEST_NAME).is_file():
            (out / SELECTION_NAME).unlink(missing_ok=True)
            for name in (TOKENIZER_NAME, *SPLITS):
                shutil.rmtree(out / name, ignore_errors=True)
        new.rename(work)
    return work


def _renew_work(out: Path) -> Path:
    """Remove the files of all stages; return an empty work folder. It exists throughout, so
    `check_use` accepts `out` even after this process was killed.
    """
    new = out / _WORK_NAMES.replace("*", "new")
    new.mkdir(exist_ok=True)
    _remove_work(out, new)
    return new


def find_work(out: Path) -> Path | None:
    """Return the folder for the files of the stages; None if nothing is being prepared."""
    return next((plan.parent for plan in out.glob(f"{_WORK_NAMES}/{PLAN_NAME}")), None)


def _list_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """List the keys of `now` whose values differ, with both values."""
    for name, value in now.items():
        other = before.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            nested = cast(Mapping[str, Any], other), cast(Mapping[str, Any], value)
            yield from _list_differences(*nested, f"{prefix}{name}.")
        elif json.dumps(value) != json.dumps(other):  # JSON has no tuples
            yield f"{prefix}{name} was {other} and is {value}"


def _find_damage(out: Path, manifest: Manifest) -> str | None:
    """Return how a finished folder differs from its manifest, as a sentence; None if it matches."""
    try:
        for split in SPLITS:
            TokenStore.open(out, split)
        found = Tokenizer.load(out / TOKENIZER_NAME).fingerprint
    except MaskwrightError as error:
        return str(error)
    if found != manifest.tokenizer_fingerprint:
        return f"{out / TOKENIZER_NAME} is not the tokenizer of these tokens."
    return None


def tidy_folder(out: Path) -> None:
    """Remove the files that only an unfinished preparation needs."""
    _remove_work(out)
    _remove_stdin(out)


def read_tally(out: Path) -> Tally | None:
    """Return the selection counts of the folder `out`; None if they are missing or damaged."""
    try:
        return Tally.from_plain(read_json(out / SELECTION_NAME, _MAX_TALLY_BYTES))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remove_stdin(out: Path) -> None:
    for spooled in out.glob(_STDIN_NAMES):
        spooled.unlink()


def _remove_work(out: Path, kept: Path | None = None) -> None:
    for work in out.glob(_WORK_NAMES):
        if work != kept:
            (work / PLAN_NAME).unlink(missing_ok=True)
            shutil.rmtree(work)
