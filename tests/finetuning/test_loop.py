"""A seed that a signal stops goes on at its step, and ends with the bits of an undisturbed run."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.finetuning.contrastive import ContrastiveFitting
from maskwright.finetuning.fit import Fitting
from maskwright.finetuning.loop import Loop
from maskwright.logs import read_metrics
from maskwright.model_folder.folder import save_model
from maskwright.train.checkpoint import save_checkpoint
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.finetuning.test_resume import assert_same
from tests.finetuning.test_same_bits import KINDS, write_train

FAST = [
    "--epochs",
    "2",
    "--learning_rate",
    "0.003",
    "--device",
    "cpu",
    "--batch_size",
    "16",
    "--beside",
    "off",
]
_TRAIN, _SCORES = Loop._train, {Fitting: "_score", ContrastiveFitting: "score"}


class Stops:
    """Signals in the middle of steps and of evaluations, each once; the steps that are trained."""

    def __init__(self, patch: pytest.MonkeyPatch, number: signal.Signals = signal.SIGTERM) -> None:
        self.number, self.steps = number, list[int]()
        self.in_steps, self.in_scores = set[int](), set[int]()
        outer = self

        def train(loop: Loop, compute_loss: Any, numbers: list[int]) -> None:
            outer.steps.append(loop.step + 1)
            outer.stop_if(outer.in_steps, loop.step + 1)
            _TRAIN(loop, compute_loss, numbers)

        patch.setattr(Loop, "_train", train)
        for owner, name in _SCORES.items():
            patch.setattr(owner, name, self.watch(getattr(owner, name)))

    def watch(self, real: Any) -> Any:
        def score(fitting: Any, *examples: Any) -> Any:
            found = real(fitting, *examples)
            self.stop_if(self.in_scores, fitting.loop.step)
            return found

        return score

    def stop_if(self, steps: set[int], step: int) -> None:
        if step in steps:
            steps.remove(step)
            signal.raise_signal(self.number)


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    return Stops(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped") / "model"
    save_model(folder, make_loaded().model, TOKENIZER)
    return folder


def list_command(model: Path, kind: str, folder: Path) -> list[str]:
    task, *flags = KINDS[kind]
    train = str(write_train(folder, kind))
    return ["finetune", str(model), "--task", task, "--train", train, *FAST, *flags]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_that_is_stopped_again_and_again_has_the_same_bits(
    kind: str, model: Path, tmp_path: Path, stops: Stops, cli: Cli
):
    command = list_command(model, kind, tmp_path)
    cli(*command, "--out", tmp_path / "whole")
    whole, stops.steps = stops.steps, []
    last = max(whole)  # folds of a linear model beside have fewer steps
    assert last > 4
    # In the first step, in two others, in an evaluation in the middle, and in the last one.
    scored = {one["step"] for one in read_metrics(tmp_path / "whole" / "metrics.jsonl")} - {0, last}
    stops.in_steps, stops.in_scores = {1, 3, last}, {min(scored), last}
    for count in range(5):
        code, _, err = cli.run(*command, "--out", tmp_path / "run")
        assert code == 128 + signal.SIGTERM, count
        assert "the steps of this one" in err
    assert f"goes on at step {last:,} of {last:,}" in cli(*command, "--out", tmp_path / "run")
    assert stops.steps == whole  # no step is trained twice
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_seeds_tests_and_controls_that_are_stopped_have_the_same_bits(
    model: Path, tmp_path: Path, stops: Stops, cli: Cli
):
    command = list_command(model, "classification", tmp_path)
    command += ["--test", command[command.index("--train") + 1], "--seeds", "2", "--control"]
    cli(*command, "--out", tmp_path / "whole")
    whole, stops.steps = stops.steps, []
    last, num_stops = max(whole), 0
    for _ in range(4):  # two seeds, and two of the control
        for in_step, in_score in ((2, last), (last + 1, last)):
            stops.in_steps, stops.in_scores = {in_step}, {in_score}
            while cli.run(*command, "--out", tmp_path / "run")[0]:
                num_stops += 1
    assert num_stops >= 2
    cli("finetune", "--resume", tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_ctrl_c_keeps_the_steps_and_a_second_one_does_not_wait(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    cli: Cli,
):
    # Processes in the background of a shell begin with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    stops = Stops(monkeypatch, signal.SIGINT)
    command = list_command(model, "classification", tmp_path)
    stops.in_steps = {2}
    code, _, err = cli.run(*command, "--out", tmp_path / "once")
    assert (code, "the steps of this one" in err) == (130, True)
    monkeypatch.setattr(
        Stops, "stop_if", lambda *_: [signal.raise_signal(signal.SIGINT) for _ in range(2)]
    )
    code, _, err = cli.run(*command, "--out", tmp_path / "twice")
    assert (code, "saved: no step" in err) == (130, True)


def test_a_damaged_state_is_reported_and_another_is_refused(
    model: Path, tmp_path: Path, stops: Stops, cli: Cli
):
    command = [*list_command(model, "classification", tmp_path), "--out", str(tmp_path / "run")]
    stops.in_steps = {2}
    assert cli.run(*command)[0] == 143
    [state] = (tmp_path / "run" / "checkpoints" / "seed").glob("step_*")
    others = [word if word != "0.003" else "0.002" for word in command]
    assert "learning_rate = 0.003, not 0.002" in cli.refuse(*others)
    (state / "tensors.safetensors").write_bytes(b"")
    stops.steps = []
    assert "the seed is trained again" in cli(*command)
    assert stops.steps[0] == 1


def test_the_state_of_something_else_is_one_line(
    model: Path, tmp_path: Path, stops: Stops, cli: Cli
):
    command = list_command(model, "classification", tmp_path)
    folder = tmp_path / "run" / "checkpoints" / "seed"
    stops.in_steps = {2}
    assert cli.run(*command, "--out", tmp_path / "run")[0] == 143
    save_checkpoint(folder, 9, {"one": torch.zeros(1)}, {"seed": 0}, keep=1)
    assert "holds no stopped seed" in cli.refuse(*command, "--out", tmp_path / "run")
