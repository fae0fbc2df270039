"""A sweep finds the best settings, and ends as it would have if nobody had stopped it."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from maskwright.errors import ConfigError, InputError, MaskwrightError, StoppedError, TrainingError
from maskwright.files import locking_folder
from maskwright.finetuning.config import FinetuneConfig
from maskwright.report import pages
from maskwright.runs.config import PretrainConfig
from maskwright.sweeping import run
from maskwright.sweeping.run import Dimension, list_arms, parse_space, sweep
from tests.command import Cli
from tests.reliability.test_locks import wait_until
from tests.workplace import SMALL, write_corpus

optuna = pytest.importorskip("optuna")
OVER = ["masking.rate=0.1..0.6", "optim.name=adamw,muon"]


class Machine:
    """Runs of pretrain without training: the loss is the distance of the masking rate from 0.3."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.codes: dict[int, int] = {}  # by call, from 0
        self.said = ""

    def __call__(self, command: Sequence[str], log: Path) -> tuple[int, signal.Signals | None]:
        code = self.codes.get(len(self.rates), 0)
        rate = float(command[command.index("--masking.rate") + 1])
        self.rates.append(rate)
        folder = Path(command[command.index("--runs-dir") + 1])
        folder = folder / command[command.index("--name") + 1]
        folder.mkdir(exist_ok=True)
        log.write_text(self.said)
        record = {"split": "valid", "step": 1, "final": True, "loss": abs(rate - 0.3)}
        if code == 0:
            (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
        return code, None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Fake runs; the page, which is written after each, has fake charts, too."""
    machine = Machine()
    monkeypatch.setattr(run, "run_process", machine)
    monkeypatch.setattr(pages, "draw_scatter", lambda *_, **__: "<svg/>")
    return machine


DEFAULTS = ["--learning_rate=1e-4", "--epochs", "3", "--layer_decay", "1"]


def search(out: Path, trials: int, **changes: Any) -> list[run.Trial]:
    return sweep("pretrain", ["corpus"], **{"out": out, "over": OVER, "trials": trials, **changes})


def test_the_best_comes_first(machine: Machine, tmp_path: Path):
    found = search(tmp_path / "sweep", 15)
    assert len(found) == len(machine.rates) == 15
    scores = [trial.score for trial in found if trial.score is not None]
    assert scores == sorted(scores)
    assert scores[0] < 0.05
    page = (tmp_path / "sweep" / "report.html").read_text(encoding="utf-8")
    assert f"--masking.rate {found[0].settings['masking.rate']}" in page
    assert page.count("<svg") == 2


def test_one_process_at_a_time_sweeps_in_a_folder(machine: Machine, tmp_path: Path):
    search(tmp_path / "sweep", 1)
    with (
        locking_folder(tmp_path / "sweep", lambda: None, print),
        pytest.raises(InputError, match="is in use by another sweep"),
    ):
        search(tmp_path / "sweep", 2)
    assert len(machine.rates) == 1


def test_a_sweep_that_was_stopped_tries_the_same_settings(machine: Machine, tmp_path: Path):
    whole = [trial.settings for trial in search(tmp_path / "whole", 6)]
    machine.rates.clear()
    machine.codes = {2: -15}
    with pytest.raises(StoppedError):
        search(tmp_path / "stopped", 6)
    assert len(machine.rates) == 3
    again = [trial.settings for trial in search(tmp_path / "stopped", 6)]
    assert again == whole
    assert machine.rates[2] == machine.rates[3]  # the trial that was stopped is resumed
    more = search(tmp_path / "stopped", 8)
    assert len(more) == 8


def test_list_arms_combines_choices_once():
    over = ["masking.rate=0.1,0.2,0.4", "optim.name=adamw,muon"]
    arms = list_arms(parse_space(over, PretrainConfig))
    assert arms is not None
    tried = [tuple(fields.values()) for fields in arms.values()]
    assert tried == list(product(("0.1", "0.2", "0.4"), ("adamw", "muon")))
    assert next(iter(arms)) == "rate=0.1,name=adamw"
    assert list_arms(parse_space(OVER, PretrainConfig)) is None


def test_lists_alone_are_no_search(machine: Machine, tmp_path: Path):
    with pytest.raises(InputError, match="arms of an experiment"):
        search(tmp_path / "sweep", 4, over=["masking.rate=0.1,0.2"])
    assert machine.rates == []


def test_a_trial_that_fails_is_the_last(machine: Machine, tmp_path: Path):
    machine.codes = {1: 1}
    found = search(tmp_path / "sweep", 4)
    assert [trial.score is None for trial in found] == [False, False, False, True]
    machine.codes = dict.fromkeys(range(30), 1)
    with pytest.raises(TrainingError, match="3 trials in a row"):
        search(tmp_path / "other", 9)


def test_failures_of_an_earlier_call_do_not_end_a_sweep(machine: Machine, tmp_path: Path):
    machine.codes = dict.fromkeys(range(1, 4), 1)
    with pytest.raises(TrainingError, match="3 trials in a row"):
        search(tmp_path / "sweep", 6)
    assert len(search(tmp_path / "sweep", 6)) == 6


def test_the_first_trial_tells_what_is_wrong_with_the_input(machine: Machine, tmp_path: Path):
    machine.codes = {0: 2}
    with pytest.raises(InputError, match="the first trial fails"):
        search(tmp_path / "sweep", 4)
    corrected = ["masking.rate=0.2..0.3"]
    assert len(search(tmp_path / "sweep", 2, over=corrected)) == 2
    with pytest.raises(InputError, match="another command, space or seed"):
        search(tmp_path / "sweep", 3)


def test_a_first_trial_that_diverges_is_one_failure(machine: Machine, tmp_path: Path):
    machine.codes, machine.said = {0: 2}, "TrainingError: the loss is not finite\n"
    assert [trial.score is None for trial in search(tmp_path / "sweep", 3)] == [False, False, True]


def test_a_score_that_is_not_a_number_is_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    scores = iter([math.nan, 0.5, math.inf])
    monkeypatch.setattr(run, "read_score", lambda *_: next(scores))
    assert [trial.score for trial in search(tmp_path / "sweep", 3)] == [0.5, None, None]


def test_a_checkpoint_keeps_the_folder_for_its_sweep(machine: Machine, tmp_path: Path):
    machine.codes = {0: -15}
    with pytest.raises(StoppedError):
        search(tmp_path / "sweep", 2)
    (tmp_path / "sweep" / "trial-000" / "checkpoints" / "step_1").mkdir(parents=True)
    with pytest.raises(InputError, match="another command, space or seed"):
        search(tmp_path / "sweep", 2, seed=1)


def test_nothing_is_recommended_if_all_trials_fail(machine: Machine, tmp_path: Path, cli: Cli):
    machine.codes = {0: 1}
    out = tmp_path / "sweep"
    flags = ["--over", OVER[0], "--trials", "1", "--out", str(out)]
    code, said, err = cli.run("sweep", "pretrain", "corpus", *flags)
    assert str(out / "trial-000.log") in err
    assert (code, "Best" in said) == (2, False)
    assert not (out / "report.html").exists()
    assert main(["sweep", "pretrain", "corpus", *flags]) == 0  # the cause was removed
    assert machine.rates[0] == machine.rates[1]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("flags", "direction"),
    [
        (["--metric", "mean_squared_error"], "MINIMIZE"),
        (["--metric=pearson", "--metric=mean_squared_error"], "MINIMIZE"),
        (["--metric", "pearson"], "MAXIMIZE"),
        (["--task", "regression"], "MINIMIZE"),
        (["--task", "regression", "--metric", "pearson"], "MAXIMIZE"),
        ([], "MAXIMIZE"),
    ],
)
def test_the_best_error_is_the_smallest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], direction: str
):
    def finetune(command: Sequence[str], _log: Path) -> tuple[int, None]:
        rate = float(command[command.index("--learning_rate") + 1])
        folder = Path(command[command.index("--out") + 1])
        folder.mkdir()
        results = {"deciding_metric": "x", "scores": {"x": {"mean": rate}}}
        (folder / "results.json").write_text(json.dumps(results))
        return 0, None

    monkeypatch.setattr(run, "run_process", finetune)
    over = ["learning_rate=0.001..0.01"]
    found = sweep("finetune", ["runs/x", *flags], out=tmp_path / "sweep", over=over, trials=3)
    scores = [trial.score for trial in found if trial.score is not None]
    assert scores == sorted(scores, reverse=direction == "MAXIMIZE")
    storage = f"sqlite:///{tmp_path / 'sweep' / run.STUDY_NAME}"
    assert optuna.load_study(study_name="sweep", storage=storage).direction.name == direction


@pytest.mark.parametrize("metric", ["found", "spearman"])
def test_vectors_have_a_score(tmp_path: Path, metric: str):
    results = {metric: 0.75, "valid_loss": 1.0, "before": {metric: 0.5}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert run.read_score("finetune", tmp_path) == 0.75


_TRIAL = """
import os, pathlib, signal, sys

def save(number, frame):
    with open(sys.argv[1] + ".signals", "a") as file:
        file.write(signal.Signals(number).name + " ")
    sys.exit(128 + number)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, save)
pathlib.Path(sys.argv[1] + ".ready").touch()
while True:
    signal.pause()
"""
_SWEEP = """
import sys
from maskwright.cli.main import main
from maskwright.sweeping.run import Sweep

Sweep.process = lambda plan, number, settings: [*sys.argv[2:], str(plan.folder(number))]
arguments = ["pretrain", "corpus", "--over", "masking.rate=0.1..0.6", "--out", sys.argv[1]]
sys.exit(main(["sweep", *arguments]))
"""


@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)]
)
def test_a_sweep_that_is_stopped_waits_for_its_trial(
    tmp_path: Path, number: signal.Signals, send: Any
):
    """As Ctrl-C does, SIGINT reaches the whole process group; SIGTERM only the sweep."""
    out = tmp_path / "sweep"
    with subprocess.Popen(
        [sys.executable, "-c", _SWEEP, str(out), sys.executable, "-c", _TRIAL],
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            wait_until((out / "trial-000.ready").exists, process)
            send(process.pid, number)
            _, said = process.communicate(timeout=60)
            received = (out / "trial-000.signals").read_text().split()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + number
    assert str(out / "trial-000") in said.decode()
    assert received == [number.name]


def test_a_folder_has_one_sweep(machine: Machine, tmp_path: Path):
    search(tmp_path / "sweep", 1)
    changes: list[dict[str, Any]]
    changes = [{"over": ["masking.rate=0.1..0.5"]}, {"seed": 1}, {"minutes": 3.0}]
    for change in changes:
        with pytest.raises(InputError, match="another command, space or seed"):
            search(tmp_path / "sweep", 2, **change)


def test_mistakes(machine: Machine, tmp_path: Path, cli: Cli):
    out = ["--out", str(tmp_path / "sweep")]
    for flags, field in (
        (["pretrain", "corpus"], "--over"),
        (["finetune", "runs/x", "--minutes", "3"], "--minutes"),
        (["pretrain", "corpus", "--over", OVER[0], "--trials", "0"], "--trials = 0"),
        (["pretrain", "corpus", "--over", "masking.rate=1"], "masking.rate = 1"),
        (["pretrain", "corpus", "--masking.rate", "0.3", "--over", OVER[0]], "--masking.rate"),
    ):
        assert field in cli.refuse("sweep", *flags, *out)
    with pytest.raises(InputError, match="--learning_rate sets what the sweep varies"):
        sweep("finetune", DEFAULTS, out=tmp_path / "sweep")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "book.txt").touch()
    flags = ["pretrain", "corpus", "--over", OVER[0], "--out", str(tmp_path / "full")]
    assert "holds something else" in cli.refuse("sweep", *flags)
    assert machine.rates == []


def test_real_runs(tmp_path: Path, cli: Cli):
    text = write_corpus(tmp_path / "animals.txt", 60)
    flags = [*SMALL, "--train.max_steps", "2", "--data-dir", str(tmp_path / "data")]
    where = ["--trials", "1", "--out", str(tmp_path / "sweep")]
    said = cli("sweep", "pretrain", text, *flags, "--over", OVER[0], *where)
    assert "Best: --masking.rate 0." in said
    assert (tmp_path / "sweep" / "trial-000" / "model").is_dir()
    assert "<svg" in (tmp_path / "sweep" / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("optim.learning_rate=1e-4..3e-3:log", (1e-4, 3e-3, True)),
        ("masking.rate=0.15..0.5", (0.15, 0.5)),
        ("train.batch_tokens=1024..8192:log", (1024, 8192, True, True)),
        ("masking.rate=0.15,0.3", (0, 0, False, False, ("0.15", "0.3"))),
        ("masking.strategy=words,tokens", (0, 0, False, False, ("words", "tokens"))),
    ],
)
def test_ranges_and_choices(text: str, dimension: tuple[Any, ...]):
    name, _, _ = text.partition("=")
    assert parse_space([text], PretrainConfig) == [Dimension(name, *dimension)]


@pytest.mark.parametrize(
    "text",
    [
        "masking.rate=0.5..0.1",
        "masking.rate=0.3",
        "masking.rate=0.1,often",
        "optim.learning_rate=0..1:log",
        "masking.strategy=tokens..words",
        "masking.rate",
        "masking.rate=0.1..inf",
    ],
)
def test_what_is_no_space_is_refused(text: str):
    with pytest.raises(ConfigError) as caught:
        parse_space([text], PretrainConfig)
    assert caught.value.field == text.partition("=")[0]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("tokenizer.vocab_size=1024,2048", PretrainConfig),
        ("data.max_seq_length=64,128", PretrainConfig),
        ("objective.generator_share=0.25..1", PretrainConfig),
        ("metric=pearson,mean_squared_error", FinetuneConfig),
    ],
)
def test_what_changes_the_score_cannot_be_varied(text: str, config: type):
    with pytest.raises(ConfigError, match="maskwright compare") as caught:
        parse_space([text], config)
    assert caught.value.field == text.partition("=")[0]


def test_a_setting_must_exist_and_be_named_once():
    with pytest.raises(MaskwrightError, match=r"masking\.rate"):
        parse_space(["masking.rat=0.1..0.2"], PretrainConfig)
    with pytest.raises(MaskwrightError, match="twice"):
        parse_space(["masking.rate=0.1..0.2"] * 2, PretrainConfig)
