"""Experiment trackers: Weights & Biases, MLflow and Trackio.

Each works in a thread of its own, so that a slow network or a failure never delays or stops
training: what a tracker cannot take is lost to it, and one line says so. ``metrics.jsonl`` has
everything in any case. A resumed run continues the run of the tracker, by the id in ``trackers/``.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from maskwright.console import tell
from maskwright.extras import check_extra, import_extra
from maskwright.files import write_text
from maskwright.logs import Record

FOLDER_NAME = "trackers"
PROJECT = "maskwright"  # unless the tracker's own variable names another
_MOST_WAITING = 10_000  # records
# To send the last ones when a run ends. MLflow takes half a minute to create a database on a busy
# machine.
_MOST_SECONDS = 60.0

Scores = Mapping[str, float]


class WandbTracker:
    """A run of Weights & Biases; WANDB_MODE=offline needs no network."""

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        wandb = import_extra("wandb", "wandb", "train.trackers = wandb")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        where = {"project": project, "name": folder.name, "dir": str(folder)}
        # By default the library replaces sys.stdout.write, which the run itself calls.
        quiet = wandb.Settings(console="off")
        run = {"config": dict(config), "id": run_id, "resume": "allow", "settings": quiet}
        self._run = wandb.init(**where, **run)
        self.id: str = self._run.id

    def log(self, scores: Scores, step: int) -> None:
        self._run.log(dict(scores), step=step)

    def close(self) -> None:
        self._run.finish()


class TrackioTracker(WandbTracker):
    """A run of Trackio, in its local database unless TRACKIO_SPACE_ID names a Space.

    Its runs have the methods of those of Weights & Biases.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        trackio = import_extra("trackio", "trackio", "train.trackers = trackio")
        self.id = run_id or f"{folder.name}-{time.time_ns() // 1_000_000:x}"
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self._run = trackio.init(
            project, name=self.id, config=dict(config), resume="allow", embed=False
        )


class MlflowTracker:
    """A run of MLflow, where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        self._mlflow = import_extra("mlflow", "mlflow", "train.trackers = mlflow")
        self._client = self._mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        if run_id is None:
            run_id = str(self._client.create_run(experiment, run_name=folder.name).info.run_id)
            self._client.log_dict(run_id, dict(config), "config.yaml")
        else:
            self._client.update_run(run_id, status="RUNNING")
        self.id = run_id

    def log(self, scores: Scores, step: int) -> None:
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        metrics = [metric(name, value, now, step) for name, value in scores.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self.id)


# Any method of theirs may raise anything.
TRACKERS = {
    "mlflow": MlflowTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}


def check_trackers(names: Iterable[str]) -> None:
    """Raise MissingPackageError unless the packages of these trackers are installed."""
    for name in names:
        check_extra(name, name, f"train.trackers = {name}")


class TrackerThread:
    """Sends records to a tracker, in a thread of its own.

    Args:
        name: one of `TRACKERS`.
        folder: the run directory.
        config: of the run, as plain values.
    """

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        self._name, self._folder, self._config = name, folder, config
        self._waiting: Queue[tuple[Scores, int] | None] = Queue()
        self._has_lost = False
        self._thread = Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def add(self, record: Record) -> None:
        """Take a record; return at once."""
        scores = {
            f"{record['split']}/{name}": float(value)
            for name, value in record.items()
            if isinstance(value, int | float) and name != "step"
        }
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put_nowait((scores, int(record["step"])))
        elif not self._has_lost:  # a network that has been down for hours
            self._has_lost = True
            tell(f"{self._name} does not keep up: it will lack records, metrics.jsonl has them")

    def close(self) -> None:
        """Wait until all is sent, for a minute at most."""
        self._waiting.put_nowait(None)
        self._thread.join(_MOST_SECONDS)
        if self._thread.is_alive():
            tell(f"{self._name} does not answer: it lacks the last records, metrics.jsonl has them")

    def _work(self) -> None:
        try:
            tracker = self._open()
            while (item := self._waiting.get()) is not None:
                tracker.log(*item)
            tracker.close()
        except (Exception, SystemExit) as error:  # whatever a tracker does, the run continues
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            tell(f"{self._name} gets no more records of this run: {reason[0]}")

    def _open(self) -> MlflowTracker | WandbTracker:
        path = self._folder / FOLDER_NAME / self._name
        run_id = path.read_text(encoding="utf-8") if path.exists() else None
        tracker = TRACKERS[self._name](self._folder, self._config, run_id)
        path.parent.mkdir(exist_ok=True)
        write_text(path, tracker.id)
        return tracker
