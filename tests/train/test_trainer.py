import math
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from maskwright.data.loader import LoadedStep, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.errors import MaskwrightError
from maskwright.objectives.mlm import ObjectiveSums
from maskwright.train.checkpoint import list_checkpoints, load_newest
from maskwright.train.trainer import Trainer
from tests.train.helpers import Recorder, make_trainer


def test_a_run_ends_with_its_budget_and_a_checkpoint(tmp_path: Path) -> None:
    recorder = Recorder()
    trainer = make_trainer(tmp_path, recorder)
    assert trainer.fit() is None
    assert trainer.state.step == 20
    assert trainer.progress == 1
    assert [record["step"] for record in recorder.of("train")] == list(range(1, 21))
    checkpoint, _ = load_newest(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state == trainer.state.to_json()


def test_a_run_learns() -> None:
    recorder = Recorder()
    train = {"max_steps": 120, "batch_tokens": 256, "log_every_steps": 20}
    model = {"hidden_size": 32}
    make_trainer(None, recorder, train=train, model=model, optim={"learning_rate": 2e-2}).fit()
    losses = [record["loss"] for record in recorder.of("train")]
    assert losses[0] == pytest.approx(math.log(64), rel=0.1)
    assert losses[-1] < 2.5
    assert recorder.of("train")[-1]["masked_accuracy"] > 0.3


def test_training_lines_carry_their_fields() -> None:
    recorder = Recorder()
    make_trainer(None, recorder, masking={"rate": 0.3, "final_rate": 0.1}).fit()
    last = recorder.of("train")[-1]
    assert {"step", "tokens", "seconds", "loss", "masked_accuracy", "grad_norm"} < last.keys()
    assert {"learning_rate", "tokens_per_second", "mask_rate", "row_length", "epoch"} < last.keys()
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


def test_validations_are_spread_evenly_and_end_with_the_final_one() -> None:
    recorder = Recorder()
    make_trainer(None, recorder, train={"num_validations": 4}).fit()
    assert [record["step"] for record in recorder.of("valid")] == [5, 10, 15, 20]
    assert [record["final"] for record in recorder.of("valid")] == [False, False, False, True]


def test_validation_sees_averaged_weights_in_evaluation_mode() -> None:
    trainer = make_trainer(train={"ema_decay": 0.9, "max_steps": 3, "num_validations": 1})
    seen: list[tuple[torch.Tensor, bool]] = []

    def validate(final: bool) -> dict[str, float]:
        seen.append((trainer.model.head.decoder.weight.detach().clone(), trainer.model.training))
        return {"loss": 0.0}

    trainer.validate = validate
    trainer.fit()
    assert trainer.average is not None
    weights, training = seen[0]
    assert torch.equal(weights, trainer.average.averages["encoder.embeddings.word.weight"])
    assert not torch.equal(weights, trainer.model.head.decoder.weight)
    assert not training


def test_sigterm_stops_at_a_step_boundary_with_a_checkpoint(tmp_path: Path) -> None:
    recorder = Recorder(stop_at=6)
    trainer = make_trainer(tmp_path, recorder)
    assert trainer.fit() is signal.SIGTERM
    assert trainer.state.step == 6
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step_00000006"]
    assert recorder.of("train")[-1]["step"] == 6


def test_a_signal_in_the_last_step_is_no_interruption() -> None:
    assert make_trainer(None, Recorder(stop_at=20)).fit() is None


def test_checkpoints_are_written_by_the_clock(tmp_path: Path) -> None:
    train = {"checkpoint_every_minutes": 1e-9, "keep_checkpoints": 3, "max_steps": 5}
    make_trainer(tmp_path, train=train).fit()
    assert [path.name[-1] for path in list_checkpoints(tmp_path)] == ["3", "4", "5"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_one_line(tmp_path: Path, value: float) -> None:
    trainer = make_trainer(tmp_path, train={"log_every_steps": 10})
    objective = trainer.objective

    def spoil(*arguments: object) -> ObjectiveSums:
        sums = objective(*arguments)
        return ObjectiveSums(sums.loss * value, sums.num_correct)

    trainer.objective = spoil
    with pytest.raises(MaskwrightError, match=r"not finite at or before step 10 .* lower optim"):
        trainer.fit()
    assert list_checkpoints(tmp_path) == []


def test_weights_gone_to_nan_are_never_saved(tmp_path: Path) -> None:
    recorder = Recorder()
    train = {"log_every_steps": 20, "checkpoint_every_minutes": 1e-9}
    trainer = make_trainer(tmp_path, recorder, train=train)
    objective = trainer.objective

    def spoil(*arguments: object) -> ObjectiveSums:
        sums = objective(*arguments)
        factor = math.nan if trainer.state.step == 4 else 1.0
        return ObjectiveSums(sums.loss * factor, sums.num_correct)

    trainer.objective = spoil
    with pytest.raises(MaskwrightError, match="not finite at or before step 5"):
        trainer.fit()
    checkpoint, complaints = load_newest(tmp_path)
    assert checkpoint is not None
    assert complaints == []
    assert checkpoint.state["step"] == 4
    assert all(tensor.isfinite().all() for tensor in checkpoint.tensors["model"].values())


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
