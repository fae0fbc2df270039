"""Follow a run that another process trains."""

import time
from collections.abc import Iterator
from pathlib import Path

from maskwright.console import Console
from maskwright.files import is_locked
from maskwright.logs import Record, read_training
from maskwright.objectives.objective import build_objective
from maskwright.runs.run_directory import (
    METRICS_NAME,
    MODEL_NAME,
    check_pretraining,
    load_run_config,
)
from maskwright.train.reporting import Panel

_SECONDS, _LONGEST_PAUSE = 1.0, 600.0


def watch(run: str | Path, *, once: bool = False) -> None:
    """Show a run of pretraining on the terminal until it ends, or has written nothing for long::

        watch("runs/mine")

    Args:
        run: a run directory.
        once: show the current state and return.

    Raises:
        InputError: there is no such run.
    """
    run = Path(run)
    check_pretraining(run)
    config, console, startup = load_run_config(run, {}), Console(), 0.0
    objective = build_objective(config.objective, config.data, config.masking)
    with Panel(objective.scores, console) as panel:
        for record in follow(run, once=once):
            startup = record.get("startup_seconds") or startup
            counts = {name: record[name] for name in ("step", "tokens", "seconds")}
            counts["startup_seconds"] = startup
            # Epochs need the number of tokens of the text, which is not known here.
            progress = min(max(config.train.used_shares(**counts).values(), default=0.0), 1.0)
            # The panel does not show final scores, which `pretrain` prints itself.
            panel.show({**record, "final": False}, progress)
    if console.is_terminal:  # which has removed the live panel
        console.print(panel.draw())
    if not (once or (run / MODEL_NAME).is_dir()):
        console.print(
            f"{run} is not trained any more; resume it with maskwright pretrain --resume {run}"
        )


def follow(run: Path, *, once: bool = False) -> Iterator[Record]:
    """Yield the records of a run, and new ones until it ends.

    Without a lock and a model it may have died, or train on another machine, whose lock cannot be
    seen: it has ended if it has written nothing for ten minutes.

    A resumed run removes some records and writes them again; they are then yielded again.
    """
    shown = 0
    while True:
        log = run / METRICS_NAME
        quiet = not log.exists() or time.time() - log.stat().st_mtime > _LONGEST_PAUSE
        has_ended = not is_locked(run) and (quiet or (run / MODEL_NAME).is_dir())
        records = read_training(log)
        shown = min(shown, len(records))
        yield from records[shown:]
        shown = len(records)
        if once or has_ended:
            return
        time.sleep(_SECONDS)
