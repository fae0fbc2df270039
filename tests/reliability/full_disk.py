"""Run as root of a mount namespace of its own: what happens on a disk that is full or read-only.

python -m tests.reliability.full_disk FOLDER

FOLDER holds words.txt and two undisturbed results, ``data`` and ``runs/whole``. Each scenario
gets a small disk (tmpfs) below it. Prints, as JSON, what the commands said and left behind.
"""

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from maskwright.cli.main import main
from maskwright.corpus import blocks
from maskwright.logs import MetricsLog, read_metrics
from maskwright.model_folder import folder as artifact
from maskwright.preparation import tasks
from tests.reliability.small import PREPARE, PRETRAIN, cut_back

KILOBYTE = 1024
PLENTY = 64 * 1024 * KILOBYTE
# Of which little text has three, each with more shards than what is left of a full disk.
SMALL_BLOCKS = patch.object(blocks, "_MIN_BYTES", 40_000)


def run_command(*arguments: str | Path) -> dict[str, Any]:
    """What ``maskwright ARGUMENTS`` answers."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def mount(disk: Path, num_bytes: int, *options: str) -> Path:
    """Puts a disk of this size at `disk`, or changes the size or options of the one there."""
    remount = ["remount"] if disk.is_mount() else []
    disk.mkdir(exist_ok=True)
    joined = ",".join([*remount, f"size={num_bytes}", *options])
    subprocess.run(["mount", "-t", "tmpfs", "-o", joined, "tmpfs", str(disk)], check=True)
    return disk


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on a disk with blocks of 4 KB."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in files)


def list_differing(folder: Path, whole: Path) -> list[str]:
    """Files under a final name that are not the undisturbed ones."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    final = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return [
        str(name)
        for name in final
        if (whole / name).is_file() and (folder / name).read_bytes() != (whole / name).read_bytes()
    ]


def prepare_on_a_full_disk(home: Path) -> dict[str, Any]:
    """The disk is full when a part of the shards is written."""
    disk = mount(home / "prepare", PLENTY)
    command = ("prepare", home / "words.txt", "--out", disk / "data", *PREPARE)
    with filling(disk, tasks, "write_array"):
        full = run_command(*command)
    [work] = (disk / "data").glob(".work-*")
    differing = list_differing(work, home / "data")
    shards = len(list((work / "train").glob("*.tokens")))
    mount(disk, PLENTY)
    again = run_command(*command)
    return {
        "full": full,
        "differing": differing,
        "finished_shards": shards,
        "again": again,
        "differing_at_the_end": list_differing(disk / "data", home / "data"),
        "names": sorted(path.name for path in (disk / "data").rglob("*")),
        "expected_names": sorted(path.name for path in (home / "data").rglob("*")),
    }


def compare_weights(run: Path, home: Path) -> bool:
    """Whether a run ended with the weights of the undisturbed one."""
    weights = Path("model", "model.safetensors")
    return (run / weights).read_bytes() == (home / "runs" / "whole" / weights).read_bytes()


def save_a_checkpoint_on_a_full_disk(home: Path) -> dict[str, Any]:
    """Space for three checkpoints and a half; all of six are to be kept."""
    one = size_of(home / "runs" / "whole" / "checkpoints" / "step_00000001")
    disk = mount(home / "checkpoint", int(3.5 * one))
    run = disk / "run"
    full = run_command("pretrain", home / "data", "--runs-dir", disk, "--name", "run", *PRETRAIN)
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    mount(disk, PLENTY)
    again = run_command("pretrain", "--resume", run)
    return {"full": full, "names": names, "again": again, "same": compare_weights(run, home)}


@contextlib.contextmanager
def filling(disk: Path, owner: Any, name: str) -> Generator[None]:
    """Within it, another program fills the disk but for 8 KB before ``owner.name`` is called."""
    call: Callable[..., Any] = getattr(owner, name)

    def fill_and_call(*arguments: Any, **named: Any) -> Any:
        setattr(owner, name, call)
        mount(disk, size_of(disk) + 8 * KILOBYTE)
        return call(*arguments, **named)

    setattr(owner, name, fill_and_call)
    yield
    setattr(owner, name, call)


def save_a_model_on_a_full_disk(home: Path) -> dict[str, Any]:
    """No space for the weights of the model folder."""
    disk = mount(home / "model", PLENTY)
    run = disk / "run"
    shutil.copytree(home / "runs" / "whole", run)
    cut_back(run, 4)
    with filling(disk, artifact, "write_weights"):
        full = run_command("pretrain", "--resume", run)
    names = sorted(path.name for path in run.iterdir())
    mount(disk, PLENTY)
    again = run_command("pretrain", "--resume", run)
    return {"full": full, "names": names, "again": again, "same": compare_weights(run, home)}


def log_on_a_full_disk(home: Path) -> dict[str, Any]:
    """No space for more than a few lines of metrics."""
    disk = mount(home / "log", PLENTY)
    run = disk / "run"
    shutil.copytree(home / "runs" / "whole", run)
    cut_back(run, 4)
    steps = ["--train.max_steps", "400", "--train.checkpoint_every_minutes", "9"]
    with filling(disk, MetricsLog, "write"):
        full = run_command("pretrain", "--resume", run, *steps)
    whole_lines = (run / "metrics.jsonl").read_bytes().endswith(b"\n")
    mount(disk, PLENTY)
    again = run_command("pretrain", "--resume", run, "--train.max_steps", "6")
    steps = [r["step"] for r in read_metrics(run / "metrics.jsonl") if r["split"] == "train"]
    return {
        "full": full,
        "whole_lines": whole_lines,
        "again": again,
        "steps": steps,
        "same": compare_weights(run, home),
    }


def work_on_a_read_only_disk(home: Path) -> dict[str, Any]:
    """Finished data and a run on a disk that cannot be written to."""
    disk = mount(home / "read-only", PLENTY)
    shutil.copytree(home / "data", disk / "data")
    shutil.copytree(home / "runs" / "whole", disk / "run")
    mount(disk, PLENTY, "ro")
    text, new = home / "words.txt", home / "new"
    start = ["pretrain", disk / "data", *PRETRAIN, "--runs-dir"]
    return {
        "prepared before": run_command("prepare", text, "--out", disk / "data", *PREPARE),
        "data that is read": run_command(*start, new, "--name", "run"),
        "prepare": run_command("prepare", text, "--out", disk / "other", *PREPARE),
        "pretrain": run_command(*start, disk, "--name", "other"),
        "resume": run_command("pretrain", "--resume", disk / "run"),
        "same": compare_weights(new / "run", home),
    }


SCENARIOS = (
    prepare_on_a_full_disk,
    save_a_checkpoint_on_a_full_disk,
    save_a_model_on_a_full_disk,
    log_on_a_full_disk,
    work_on_a_read_only_disk,
)

if __name__ == "__main__":
    place = Path(sys.argv[1])
    with SMALL_BLOCKS:
        print(json.dumps({scenario.__name__: scenario(place) for scenario in SCENARIOS}))
