"""A fine-tuning that was stopped or killed goes on, and ends as if nothing had happened."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.finetuning.fit import Fitting, RunResult
from maskwright.logs import read_metrics
from maskwright.runs.run_directory import locking_run
from tests.cli.test_finetune import FAST, write_table
from tests.command import Cli

CLOCKS = ("seconds",)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing that runs afterwards may be needed."""


@pytest.fixture(scope="module")
def command(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """All of a command but where to write."""
    folder = tmp_path_factory.mktemp("resumed")
    train, test = write_table(folder / "train.tsv"), write_table(folder / "test.tsv", 40)
    arguments = ["finetune", str(workplace / "runs" / "small"), "--task", "classification"]
    arguments += ["--train", str(train), "--test", str(test), "--seeds", "3", "--control", *FAST]
    return [*arguments, "--columns", "sentence1=text", "label=right"]


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main([*command, "--out", str(out)]) == 0
    return out


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_clocks(one) for name, one in value.items() if name not in CLOCKS}
    return [without_clocks(one) for one in value] if isinstance(value, list) else value


def assert_same(run: Path, whole: Path) -> None:
    """Every file is there with the same content, but for clocks and where it was written."""
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file()) == names
    for name in names:
        if name.name in ("metrics.jsonl", "results.json"):
            one, other = (
                read_metrics(each / name)
                if name.suffix == ".jsonl"
                else json.loads((each / name).read_text())
                for each in (run, whole)
            )
            assert without_clocks(one) == without_clocks(other), name
        elif name.name not in ("provenance.json", "report.html"):
            assert (run / name).read_bytes() == (whole / name).read_bytes(), name


def stop_at(monkeypatch: pytest.MonkeyPatch, num_runs: int, stop: Callable[[], None]) -> list[int]:
    """Calls `stop` in the middle of a seed, after so many whole ones; the seeds that are begun."""
    begun: list[int] = []
    score, run = Fitting._score, Fitting.run

    def count(self: Fitting) -> RunResult:
        begun.append(self.result.seed)
        return run(self)

    def score_or_stop(self: Fitting, *examples: Any) -> Any:
        if len(begun) > num_runs:
            stop()
        return score(self, *examples)

    monkeypatch.setattr(Fitting, "run", count)
    monkeypatch.setattr(Fitting, "_score", score_or_stop)
    return begun


def kill() -> None:
    raise KilledError


@pytest.mark.parametrize("num_runs", [0, 2, 4])  # before the first, among them, in the control
def test_a_killed_run_that_is_repeated_ends_with_the_same_bits(
    num_runs: int,
    command: list[str],
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, num_runs, kill)
        with pytest.raises(KilledError):
            main([*command, "--out", str(out)])
    begun = stop_at(monkeypatch, 9, kill)
    again = ["finetune", "--resume", str(out)] if num_runs == 2 else [*command, "--out", str(out)]
    assert cli(*again).count("is already finished: accuracy") == num_runs
    assert begun == [0, 1, 2, 0, 1, 2][num_runs:]
    assert_same(out, whole)


def test_sigterm_ends_a_run_with_one_line_that_says_how_to_go_on(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
):
    out = tmp_path / "run"
    before = signal.getsignal(signal.SIGTERM)
    stop_at(monkeypatch, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    code, _, err = cli.run(*command, "--out", out)
    [line] = err.splitlines()
    assert code == 128 + signal.SIGTERM
    assert f"--resume {out}" in line
    assert signal.getsignal(signal.SIGTERM) == before
    assert (out / "checkpoints" / "step_00000001").is_dir()
    assert f"maskwright finetune --resume {out}" in cli.refuse("predict", out, "text")
    # Other settings would make it another run, so its finished seed is not thrown away.
    others = [word if word != "0.003" else "0.002" for word in command]
    assert "learning_rate = 0.003, not 0.002" in cli.refuse(*others, "--out", out)
    train = Path(command[command.index("--train") + 1])
    text = train.read_text()
    train.write_text(text + "One more.\tno\t7\n")
    assert f"the sha256 of {train}" in cli.refuse("finetune", "--resume", out)
    train.write_text(text)
    assert (out / "checkpoints" / "step_00000001").is_dir()


def test_a_finished_run_is_left_as_it_is(command: list[str], whole: Path, cli: Cli):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    for arguments in ([*command, "--out", str(whole)], ["finetune", "--resume", str(whole)]):
        assert "is already finished" in cli(*arguments)
    assert "exists already. Choose another folder" in cli.refuse(
        *command, "--out", whole, "--epochs", "1"
    )
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_second_process_is_refused(command: list[str], whole: Path, tmp_path: Path, cli: Cli):
    out = tmp_path / "run"
    out.mkdir()
    with locking_run(out, print):  # as another process would
        assert f"{out} is being trained by another process" in cli.refuse(*command, "--out", out)
    with locking_run(whole, print):
        assert "is being trained by another process" in cli.refuse("finetune", "--resume", whole)
    assert list(out.iterdir()) == []


def test_what_is_no_unfinished_run_cannot_be_resumed(
    workplace: Path, whole: Path, tmp_path: Path, cli: Cli
):
    damaged = tmp_path / "damaged"
    shutil.copytree(whole, damaged)
    provenance = json.loads((damaged / "provenance.json").read_text())
    del provenance["asked"]["files"]["columns"]
    (damaged / "provenance.json").write_text(json.dumps(provenance))
    for arguments, message in (
        (["--resume", str(tmp_path / "none")], "is not a run directory of maskwright finetune"),
        (["--resume", str(workplace / "runs" / "small")], "is not a run directory of"),
        (["--resume", str(damaged)], "does not record a valid request ('columns')"),
        (["--resume", str(whole), "--seeds", "9"], "Remove --seeds."),
        (["--resume", str(whole), "--valid-share", "0.2"], "Remove --valid-share."),
        ([str(workplace), "--resume", str(whole)], "Remove MODEL."),
        ([str(workplace), "--task", "tokens"], "give --train and --out, or --resume RUN alone"),
    ):
        assert message in cli.refuse("finetune", *arguments)
