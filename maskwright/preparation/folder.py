"""The folder that is prepared: who may write to it, and how far it has come.

``preparing.json`` names the input of an unfinished folder, and ``.work-ID`` holds the files of its
stages, ID from that name: what a process of an earlier preparation still writes goes nowhere.
``manifest.json`` finishes it.
"""

import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from maskwright.errors import MaskwrightError, ShardError
from maskwright.files import find_link, locking_folder, read_json, temporary_path, write_json
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

STATE_NAME = "preparing.json"
STDIN_PREFIX = "stdin"  # of the file that standard input is written to
SELECTION_NAME = "selection.json"  # what selection dropped and why
_WORK_NAMES = ".work-*"
_MAX_STATE_BYTES = 1 << 20
_MAX_TALLY_BYTES = 16 << 20

Report = Callable[[str], None]


@contextmanager
def making_folder(folder: Path, report: Report) -> Generator[None]:
    """Make `folder` and keep other processes from preparing it; wait for one that does.

    Raises:
        ShardError: `folder` is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ShardError(f"{folder} is a file, in use for something else.") from None
    busy = f"{folder} is being prepared by another process; waiting for it"
    with locking_folder(folder, lambda: report(busy), report):
        yield


def check_use(out: Path) -> None:
    """Raise if a folder holds anything but prepared data, finished or not, or leads elsewhere.

    Raises:
        ShardError: it does.
    """
    ours = (out / MANIFEST_NAME).is_file() or (out / STATE_NAME).is_file()
    killed_at_once = {temporary_path(out / STATE_NAME).name}
    if not ours and {entry.name for entry in out.iterdir()} - killed_at_once:
        raise ShardError(f"{out} is in use for something else. Choose another --out.")
    if link := find_link(out):
        raise ShardError(
            f"{link} is a symbolic link, so data would be written elsewhere. Link {out} as a whole,"
            " or choose another --out."
        )


def mark_unfinished(out: Path, identity: str) -> None:
    """Record that `out` is to hold the input with this identity."""
    write_json(out / STATE_NAME, {"identity": identity})


def claim_finished(
    out: Path, fingerprint: str, source: Mapping[str, Any], report: Report
) -> Manifest | None:
    """Return the manifest of a finished folder; None if it was damaged and is to be filled again.

    Args:
        source: what the manifest is to say of the text and the configuration.

    Raises:
        ShardError: `out` holds other data.
    """
    manifest = read_manifest(out)
    if manifest.fingerprint != fingerprint:
        _remove_stdin(out)
        differences = list(_list_differences(manifest.source, source))
        raise ShardError(
            f"{out} was prepared from other text or with another configuration: "
            f"{', '.join(differences) or 'what is in the files'}. "
            "Choose another --out, or remove that folder."
        )
    damage = _find_damage(out, manifest)
    if damage is None:
        return manifest
    report(f"preparing {out} again, because it was damaged: {damage}")
    mark_unfinished(out, "")
    (out / MANIFEST_NAME).unlink()
    return None


def claim_work(out: Path, identity: str) -> Path:
    """Return the folder for the files of the stages, with what an earlier process left of it.

    What belongs to another input is removed.
    """
    work = out / _WORK_NAMES.replace("*", identity[:12])
    if read_state(out) != identity:
        mark_unfinished(out, "")  # until all of it is gone
        _remove_work(out)
        if not (out / MANIFEST_NAME).is_file():
            (out / SELECTION_NAME).unlink(missing_ok=True)
            for name in (TOKENIZER_NAME, *SPLITS):
                shutil.rmtree(out / name, ignore_errors=True)
        mark_unfinished(out, identity)
    work.mkdir(exist_ok=True)
    return work


def find_work(out: Path) -> Path | None:
    """Return the folder for the files of the stages; None if nothing is being prepared."""
    return next(iter(out.glob(_WORK_NAMES)), None)


def _list_differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """List what the two state differently."""
    for name, value in now.items():
        other = before.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            nested = cast(Mapping[str, Any], other), cast(Mapping[str, Any], value)
            yield from _list_differences(*nested, f"{prefix}{name}.")
        elif not _is_same(value, other):
            yield f"{prefix}{name} was {other} and is {value}"


def _is_same(value: Any, other: Any) -> bool:
    """Return True if both are equal as JSON, which has no tuples."""
    return json.dumps(value) == json.dumps(other)


def _find_damage(out: Path, manifest: Manifest) -> str | None:
    """Return what of the finished folder differs from the manifest."""
    try:
        for split in SPLITS:
            TokenStore.open(out, split)
        found = Tokenizer.load(out / TOKENIZER_NAME).fingerprint
    except MaskwrightError as error:
        return str(error)
    if found != manifest.tokenizer_fingerprint:
        return f"{out / TOKENIZER_NAME} is not the tokenizer of these tokens."
    return None


def read_state(out: Path) -> str:
    """Return the identity of the input of an unfinished folder; empty if there is none."""
    try:
        values: dict[str, Any] = read_json(out / STATE_NAME, _MAX_STATE_BYTES)
        return str(values["identity"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def tidy_folder(out: Path) -> None:
    """Remove what only an unfinished preparation needs."""
    _remove_work(out)
    _remove_stdin(out)
    if (out / STATE_NAME).exists():  # where nothing can be written, unlinking nothing fails, too
        (out / STATE_NAME).unlink()


def is_described(out: Path) -> bool:
    """Return True if selection has counted the languages of the text."""
    tally = read_tally(out)
    return tally is not None and bool(tally.languages)


def read_tally(out: Path) -> Tally | None:
    """Return what selection counted for the folder `out`; None if that is missing or damaged."""
    try:
        return Tally.from_plain(read_json(out / SELECTION_NAME, _MAX_TALLY_BYTES))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remove_stdin(out: Path) -> None:
    for spooled in out.glob(f"{STDIN_PREFIX}-*.txt"):
        spooled.unlink()


def _remove_work(out: Path) -> None:
    for work in out.glob(_WORK_NAMES):
        shutil.rmtree(work)
