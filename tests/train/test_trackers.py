"""Trackers get the numbers of a run; whatever they do, the run is as without them."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.extras import how_to_install
from maskwright.logs import Record, read_metrics
from maskwright.train import reporting
from maskwright.train.reporting import TRACKERS, TrackerThread
from tests.workplace import SMALL, write_corpus


class Recorder:
    """A tracker that keeps what it gets."""

    opened: list["Recorder"]

    def __init__(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> None:
        self.folder, self.config, self.resumed = folder, config, run_id
        self.id = run_id or "first"
        self.points: list[tuple[Mapping[str, float], int]] = []
        self.closed = False
        self.opened.append(self)

    def log(self, scores: Mapping[str, float], step: int) -> None:
        self.points.append((scores, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    monkeypatch.setattr(Recorder, "opened", [], raising=False)
    monkeypatch.setitem(TRACKERS, "wandb", Recorder)
    monkeypatch.setattr(reporting, "check_extra", lambda *names: None)
    return Recorder.opened


def record(step: int, **values: object) -> Record:
    return {"split": "train", "step": step, "loss": 2.0 / step, **values}


def test_a_run_and_its_resumption_are_one_run_of_a_tracker(
    opened: list[Recorder], tmp_path: Path
) -> None:
    text = write_corpus(tmp_path / "animals.txt", 60)
    where = ["--runs-dir", str(tmp_path), "--name", "run", "--data-dir", str(tmp_path / "data")]
    flags = [*SMALL, "--train.log_every_steps", "1", "--train.trackers", "wandb"]
    command = ["pretrain", str(text), *where, *flags]
    assert main([*command, "--train.max_steps", "3"]) == 0
    resume = ["pretrain", "--resume", str(tmp_path / "run"), "--train.max_steps", "5"]
    assert main(resume) == 0
    first, second = opened
    assert (first.resumed, second.resumed) == (None, "first")
    assert first.closed
    assert first.folder.name == "run"
    assert first.config["train"]["max_steps"] == 3
    logged = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = [(r["step"], r["loss"]) for r in logged if r["split"] == "train"]
    points = [point for tracker in opened for point in tracker.points]
    sent = [(step, scores["train/loss"]) for scores, step in points if "train/loss" in scores]
    assert [step for step, _ in sent] == [step for step, _ in losses] == [1, 2, 3, 4, 5]
    assert [loss for _, loss in sent] == pytest.approx([loss for _, loss in losses])
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_what_fails_is_told_once(
    opened: list[Recorder],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*anything: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(Recorder, "log", fail)
    thread = TrackerThread("wandb", tmp_path, {})
    for step in range(1, 20):
        thread.add(record(step))
    thread.close()
    assert capsys.readouterr().err.count("no network") == 1


def test_what_hangs_is_left_alone(
    opened: list[Recorder],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = Event()
    monkeypatch.setattr(Recorder, "log", lambda *anything: answer.wait())
    monkeypatch.setattr(reporting, "_MAX_CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(reporting, "_MAX_WAITING", 2)
    thread = TrackerThread("wandb", tmp_path, {})
    for step in range(1, 20):
        thread.add(record(step))
    thread.close()
    told = capsys.readouterr().err
    assert told.count("wandb does not keep up") == 1
    assert "wandb does not answer" in told
    answer.set()


def test_only_numbers_are_sent(opened: list[Recorder], tmp_path: Path) -> None:
    thread = TrackerThread("wandb", tmp_path, {})
    thread.add(record(7, final=True, samples=["a line"], words="none"))
    thread.close()
    [(scores, step)] = opened[0].points
    assert step == 7
    assert scores == {"train/loss": 2.0 / 7, "train/final": 1.0}


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_corpus(tmp_path / "animals.txt", 60)
    assert main(["pretrain", str(text), "--train.trackers", "wandbb", "--dry-run"]) == 2
    assert "train.trackers = wandbb" in capsys.readouterr().err


def test_a_tracker_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(write_corpus(tmp_path / "animals.txt", 60))
    where = ["--runs-dir", str(tmp_path), "--data-dir", str(tmp_path / "data"), "--name", "run"]
    assert main(["pretrain", text, *where, *SMALL, "--train.max_steps", "2"]) == 0
    [data] = (tmp_path / "data").iterdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    capsys.readouterr()
    for what in (
        [text, "--dry-run"],
        [str(data), "--dry-run"],
        [str(data), "--name", "other"],
        ["--resume", str(tmp_path / "run"), "--train.max_steps", "4"],
    ):
        assert main(["pretrain", *what, "--train.trackers", "mlflow"]) == 2
        assert how_to_install("mlflow") in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError("no network"), SystemExit("no network")])
def test_what_cannot_be_opened_is_told(
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*anything: object) -> None:
        raise error

    monkeypatch.setitem(TRACKERS, "wandb", fail)
    thread = TrackerThread("wandb", tmp_path, {})
    thread.add(record(1))
    thread.close()
    assert capsys.readouterr().err.count("no network") == 1


# The tests below need the real packages, which are too large for the extra `dev` (wandb 62 MB,
# mlflow 86 MB and 40 further packages): pip install 'maskwright[wandb,mlflow,trackio]'.
POINTS = [record(1), record(2, masked_accuracy=0.25)]


def send(name: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    thread = TrackerThread(name, folder, {"train": {"max_steps": 2}})
    for point in POINTS:
        thread.add(point)
    thread.close()


@pytest.mark.filterwarnings("default")
def test_mlflow_keeps_the_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # where mlflow puts artifacts
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    client = mlflow.MlflowClient()
    client.search_experiments()  # creates the database, which takes a minute on a slow disk
    for _ in range(2):  # a run, and its resumption
        send("mlflow", tmp_path / "run")
    experiment = client.get_experiment_by_name("maskwright")
    [run] = client.search_runs([experiment.experiment_id])
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert {(m.step, m.value) for m in losses} == {(1, 2.0), (2, 1.0)}
    assert run.info.status == "FINISHED"


@pytest.mark.filterwarnings("default")
def test_wandb_keeps_the_numbers_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    send("wandb", tmp_path / "run")
    [written] = (tmp_path / "run").glob("wandb/offline-run-*/*.wandb")
    assert b"train/loss" in written.read_bytes()


@pytest.mark.filterwarnings("default")
def test_trackio_keeps_the_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    pytest.importorskip("trackio")
    for _ in range(2):
        send("trackio", tmp_path / "run")
    [database] = (tmp_path / "trackio").glob("maskwright*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step from metrics order by step").fetchall()
    assert [step for _, step in rows] == [1, 1, 2, 2]
    assert len({name for name, _ in rows}) == 1  # the resumption is the same run
