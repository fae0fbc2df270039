import itertools
import math
import os
import re
import signal
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.data.batch import Batch
from maskwright.data.loader import LoadedStep, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.errors import ShardError, TrainingError
from maskwright.objectives.objective import TermSums
from maskwright.train.checkpoint import find_newest, list_checkpoints, open_checkpoint
from maskwright.train.log_window import LogWindow
from maskwright.train.signals import AbandonedError
from maskwright.train.step import StepFigures, StepParts
from maskwright.train.trainer import Trainer
from tests.helpers import random_corpus, row_source
from tests.train.helpers import Recorder, make_trainer

IsAsked = Callable[[], bool]


def test_a_run_ends_with_its_budget_and_a_checkpoint(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = make_trainer(tmp_path, recorder)
    assert trainer.fit() is None
    assert trainer.state.step == 20
    assert trainer.progress == 1
    assert [record["step"] for record in recorder.of("train")] == list(range(1, 21))
    checkpoint, _ = find_newest(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state.items() > trainer.state.to_json().items()


def test_a_run_learns() -> None:
    recorder = Recorder()
    train = {"max_steps": 120, "batch_tokens": 256, "log_every_steps": 20}
    model = {"hidden_size": 32}
    make_trainer(None, recorder, train=train, model=model, optim={"learning_rate": 2e-2}).fit()
    losses = [record["loss"] for record in recorder.of("train")]
    assert losses[0] == pytest.approx(math.log(64), rel=0.1)
    assert losses[-1] < 3
    assert recorder.of("train")[-1]["masked_accuracy"] > 0.2


def test_training_lines_carry_their_fields() -> None:
    recorder = Recorder()
    make_trainer(None, recorder, masking={"rate": 0.3, "final_rate": 0.1}).fit()
    last = recorder.of("train")[-1]
    assert {"step", "tokens", "seconds", "loss", "masked_accuracy", "grad_norm"} < last.keys()
    assert {"learning_rate", "tokens_per_second", "mask_rate", "row_length", "epoch"} < last.keys()
    assert {"first_row", "num_rows", "skipped_steps"} < last.keys()
    assert last["tokens_per_second"] > 0
    assert last["mask_rate"] == pytest.approx(0.11)
    assert 0 < last["learning_rate"] < 3e-3


def test_tokens_are_counted_without_padding() -> None:
    recorder = Recorder()
    trainer = make_trainer(None, recorder)
    trainer.fit()
    assert 0.7 * 20 * 64 < trainer.state.tokens < 20 * 64
    assert recorder.of("train")[-1]["tokens"] == trainer.state.tokens


@pytest.mark.parametrize(
    ("budget", "done"),
    [
        ({"max_steps": 7}, lambda trainer: trainer.state.step == 7),
        ({"max_steps": None, "max_tokens": 500}, lambda trainer: 500 <= trainer.state.tokens < 564),
        ({"max_steps": None, "max_minutes": 0.01}, lambda trainer: trainer.state.seconds >= 0.6),
    ],
)
def test_every_budget_ends_a_run(
    budget: dict[str, float | None], done: Callable[[Trainer], bool]
) -> None:
    recorder = Recorder()
    trainer = make_trainer(None, recorder, train=budget)
    trainer.fit()
    assert done(trainer)
    assert recorder.of("valid")[-1]["final"] is True


def test_minutes_end_within_the_step_that_passes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every step takes one second."""
    trainer = make_trainer(None, train={"max_steps": None, "max_minutes": 7.5 / 60})
    now, take = [0.0], trainer.prefetcher.take

    def tick(request: StepRequest, position: DataPosition) -> LoadedStep:
        now[0] += 1
        return take(request, position)

    trainer.prefetcher.take = tick
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    trainer.fit()
    assert (trainer.state.step, trainer.state.seconds) == (8, 8.0)


def test_the_beginning_is_scored_on_the_text_of_the_end_if_it_is_worth_it() -> None:
    asked: list[bool] = []
    recorder = Recorder()
    trainer = make_trainer(None, recorder)
    trainer.should_score_beginning = True
    validate = trainer.validate

    def watch(number: int, final: bool, is_asked_to_stop: IsAsked) -> dict[str, float]:
        asked.append(final)
        return validate(number, final, is_asked_to_stop)

    trainer.validate = watch
    trainer.fit()
    steps = [record["step"] for record in recorder.of("valid")]
    assert steps == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert asked == [True, *[False] * 9, True]
    assert recorder.of("valid")[0]["final"] is False


def test_every_step_and_every_pass_of_a_validation_is_told() -> None:
    recorder = Recorder()
    trainer = make_trainer(None, recorder, train={"max_steps": 4, "num_validations": 2})

    def validate(number: int, final: bool, is_asked_to_stop: IsAsked) -> dict[str, float]:
        assert [is_asked_to_stop() for _ in range(3)] == [False] * 3
        return {"loss": 0.0}

    trainer.validate = validate
    trainer.fit()
    assert [step for split, step in recorder.moments if split == "train"] == [1, 2, 3, 4]
    assert [step for split, step in recorder.moments if split == "valid"] == [2, 2, 2, 4, 4, 4]


def test_validation_sees_averaged_weights_in_evaluation_mode() -> None:
    trainer = make_trainer(train={"ema_decay": 0.9, "max_steps": 3, "num_validations": 1})
    name = "encoder.embeddings.word.weight"
    words = dict(trainer.model.named_parameters())[name]
    seen: list[tuple[torch.Tensor, bool]] = []

    def validate(number: int, final: bool, is_asked_to_stop: IsAsked) -> dict[str, float]:
        seen.append((words.detach().clone(), trainer.model.training))
        return {"loss": 0.0}

    trainer.validate = validate
    trainer.fit()
    assert trainer.average is not None
    weights, training = seen[0]
    assert torch.equal(weights, trainer.average.averages[name])
    assert not torch.equal(weights, words)
    assert not training


def test_sigterm_stops_at_a_step_boundary_with_a_checkpoint(tmp_path: Path) -> None:
    recorder = Recorder(stop_at=6)
    trainer = make_trainer(tmp_path, recorder)
    assert trainer.fit() is signal.SIGTERM
    assert trainer.state.step == 6
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_00000006"]
    assert recorder.of("train")[-1]["step"] == 6


def test_a_second_signal_leaves_the_last_checkpoint_alone(tmp_path: Path) -> None:
    """As `kill -TERM -PGID` and a sweep send one each."""
    trainer = make_trainer(tmp_path, Recorder(stop_at=6))
    assert trainer.checkpoints is not None
    save: Any = trainer.checkpoints.save

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(*arguments)

    vars(trainer.checkpoints)["save"] = interrupted
    assert trainer.fit() is signal.SIGTERM
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_00000006"]


def test_a_signal_in_the_last_step_is_no_interruption() -> None:
    assert make_trainer(None, Recorder(stop_at=20)).fit() is None


@pytest.mark.parametrize("step", [10, 20])
def test_a_validation_that_a_signal_cut_short_is_made_on_resume(tmp_path: Path, step: int) -> None:
    train = {"num_validations": 4}
    recorder = Recorder()
    trainer = make_trainer(tmp_path, recorder, train=train)

    def validate(number: int, final: bool, is_asked_to_stop: IsAsked) -> dict[str, float]:
        if trainer.state.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        if is_asked_to_stop():
            raise AbandonedError
        return {"loss": 0.0}

    trainer.validate = validate
    assert trainer.fit() is signal.SIGTERM
    assert trainer.state.step == step
    resumed = make_trainer(tmp_path, recorder, train=train)
    resumed.restore(open_checkpoint(list_checkpoints(tmp_path)[-1]))
    assert resumed.fit() is None
    assert [record["step"] for record in recorder.of("valid")] == [5, 10, 15, 20]
    assert [record["step"] for record in recorder.of("train")] == list(range(1, 21))


def test_checkpoints_are_written_by_the_clock(tmp_path: Path) -> None:
    train = {"checkpoint_every_minutes": 1e-9, "keep_checkpoints": 3, "max_steps": 5}
    make_trainer(tmp_path, train=train).fit()
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["3", "4", "5"]


def test_a_milestone_is_reached_once_and_before_the_checkpoint_of_its_step(tmp_path: Path) -> None:
    recorder, reached = Recorder(), list[tuple[str, int, list[str]]]()
    train = {"checkpoint_every_minutes": 1e-9, "max_steps": 5}
    trainer = make_trainer(tmp_path, recorder, train=train)
    trainer.milestones = {"first": 1, "half": 150, "beside it": 151, "never": 10**9}

    def save(name: str) -> None:
        saved = [path.name[-1] for path in list_checkpoints(tmp_path)]
        reached.append((name, trainer.state.step, saved))

    trainer.fit(save)
    tokens = [0, *(record["tokens"] for record in recorder.of("train"))]
    step = next(step for step, seen in enumerate(tokens) if seen >= 151)
    assert tokens[step - 1] < 150  # so that two are reached in one step
    saved = [str(step - 2), str(step - 1)]
    assert reached == [("first", 1, []), ("half", step, saved), ("beside it", step, saved)]


def spoil(trainer: Trainer, steps: Container[int], factor: float = math.nan) -> None:
    """Multiplies the loss of these steps, counted from 0."""
    objective = trainer.parallel.loss

    def spoiled(batch: Batch) -> dict[str, TermSums]:
        sums = objective(batch)["mlm"]
        bad = factor if trainer.state.step in steps else 1.0
        return {"mlm": TermSums(sums.loss * bad, sums.num_correct)}

    trainer.parallel = Parallel(spoiled)


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_skipped_and_counted(factor: float) -> None:
    recorder = Recorder()
    trainer = make_trainer(None, recorder, train={"ema_decay": 0.9})
    spoil(trainer, {4}, factor)
    before: list[dict[str, torch.Tensor]] = []
    take = trainer.prefetcher.take

    def watch(request: StepRequest, position: DataPosition) -> LoadedStep:
        before.append(tensors_of(trainer))
        return take(request, position)

    trainer.prefetcher.take = watch
    trainer.fit()
    assert (trainer.state.step, trainer.state.skipped_steps) == (20, 1)
    assert trainer.state.skipped_in_a_row == 0
    changed = [
        not all(torch.equal(a[name], b[name]) for name in a)
        for a, b in itertools.pairwise([*before, tensors_of(trainer)])
    ]
    # Neither weights nor optimizers nor averages move. (In step 0 the learning rate is still 0.)
    assert changed == [step not in (0, 4) for step in range(20)]
    lines = recorder.of("train")
    assert math.isnan(lines[4]["loss"])
    assert [line["skipped_steps"] for line in lines[3:6]] == [0, 1, 1]
    assert math.isfinite(lines[5]["loss"])


def test_a_step_is_read_when_the_next_one_has_been_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU is never without work while the host looks at figures."""
    events: list[str] = []
    trainer = make_trainer(train={"max_steps": 4, "log_every_steps": 3, "num_validations": 1})

    def start(parts: StepParts, own: torch.Tensor) -> StepFigures:
        events.append(f"start {trainer.state.step + 1}")
        return apply(parts, own)

    add = LogWindow.add
    apply = StepParts.apply_gradients
    monkeypatch.setattr(StepParts, "apply_gradients", start)

    def read(window: LogWindow, *arguments: Any) -> None:
        events.append("read")
        add(window, *arguments)

    monkeypatch.setattr(LogWindow, "add", read)
    trainer.fit()
    # A log line after step 3 and the end wait for all that came before.
    expected = ["start 1", "start 2", "read", "start 3", "read", "read", "start 4", "read"]
    assert events == expected


def tensors_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    assert trainer.average is not None
    tensors = {**dict(trainer.model.named_parameters()), **trainer.average.averages}
    state = trainer.optimizers.state_tensors()
    return {name: tensor.detach().clone() for name, tensor in {**tensors, **state}.items()}


def test_too_many_skipped_steps_end_the_run_with_the_last_good_checkpoint(tmp_path: Path) -> None:
    train = {"checkpoint_every_minutes": 1e-9, "max_skipped_steps": 3, "log_every_steps": 10}
    trainer = make_trainer(tmp_path, train=train)
    spoil(trainer, range(5, 20))
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    message = str(caught.value)
    assert "\n" not in message
    assert "not finite in 3 steps in a row; the last was step 8, epoch 0, 4 rows" in message
    assert "The last good checkpoint is kept: resume from it with a lower optim.learning" in message
    checkpoint, complaints = find_newest(tmp_path)
    assert checkpoint is not None
    assert complaints == []
    assert checkpoint.state["step"] == 5
    assert checkpoint.state["skipped_steps"] == 0


def test_a_run_that_fails_before_its_first_checkpoint_says_so(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, train={"max_skipped_steps": 3})
    spoil(trainer, range(20))
    with pytest.raises(TrainingError, match="There is no checkpoint yet: start again with a lower"):
        trainer.fit()
    assert list_checkpoints(tmp_path) == []


def test_the_batch_of_a_failure_can_be_loaded_again(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, train={"max_skipped_steps": 1})
    seen: list[LoadedStep] = []
    take = trainer.prefetcher.take

    def watch(request: StepRequest, position: DataPosition) -> LoadedStep:
        seen.append(take(request, position))
        return seen[-1]

    trainer.prefetcher.take = watch
    spoil(trainer, {7})
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    pattern = r"--epoch (\d+) --first-row (\d+) --rows (\d+) --row-length (\d+) --mask-rate (\S+)"
    found = re.search(pattern, str(caught.value))
    assert found is not None
    epoch, row, rows, length = (int(number) for number in found.groups()[:4])
    request = StepRequest(length, rows, rows, float(found[5]))
    again = row_source(random_corpus()).load(request, DataPosition(length, epoch, row))
    for a, b in zip(seen[7].micro_batches, again.micro_batches, strict=True):
        assert torch.equal(a.input_ids, b.input_ids)
        assert torch.equal(a.masked_labels, b.masked_labels)


@pytest.mark.parametrize(("failing", "saved"), [(1, []), (6, ["step_00000005"])])
def test_steps_are_saved_when_rows_cannot_be_read(
    tmp_path: Path, failing: int, saved: list[str]
) -> None:
    trainer, taken = make_trainer(tmp_path), list[StepRequest]()
    take = trainer.prefetcher.take

    def fail(request: StepRequest, position: DataPosition) -> LoadedStep:
        taken.append(request)
        if len(taken) == failing:
            raise ShardError("the disk is gone")
        return take(request, position)

    trainer.prefetcher.take = fail
    with pytest.raises(ShardError, match="the disk is gone"):
        trainer.fit()
    assert [path.name for path in list_checkpoints(tmp_path)] == saved


def test_no_checkpoint_is_written_while_steps_are_skipped(tmp_path: Path) -> None:
    train = {"checkpoint_every_minutes": 1e-9, "keep_checkpoints": 30, "max_steps": 8}
    trainer = make_trainer(tmp_path, train=train)
    spoil(trainer, {2, 3, 6})
    trainer.fit()
    steps = [int(path.name[-2:]) for path in list_checkpoints(tmp_path)]
    assert steps == [1, 2, 5, 6, 8]


def test_a_step_loaded_ahead_is_counted_as_what_it_is() -> None:
    """By the clock, the step begun ahead may be of the stage before the one that has begun."""
    recorder = Recorder()
    trainer = make_trainer(None, recorder, train={"max_steps": 2})
    source_load = trainer.prefetcher.take

    def take(request: StepRequest, position: DataPosition) -> LoadedStep:
        return source_load(StepRequest(8, 3, 3, 0.15), DataPosition(8, position.epoch, 0))

    trainer.prefetcher.take = take
    trainer.fit()
    assert [record["row_length"] for record in recorder.of("train")] == [8, 8]
