"""5 + 5 steps are 10 steps, bit for bit."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maskwright.train import trainer as trainer_module
from maskwright.train.checkpoint import find_newest
from maskwright.train.step import StepFigures, StepParts
from maskwright.train.trainer import Trainer
from tests.train.helpers import Recorder, make_trainer

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"model": {"hidden_dropout": 0.2, "attention_dropout": 0.1, "mlp_dropout": 0.1}},
    "ema": {"train": {"ema_decay": 0.99}},
    "adamw": {"optim": {"name": "adamw", "schedule": "cosine"}},
    "tokens-budget": {"train": {"max_steps": None, "max_tokens": 575}},
    "micro-batches": {"train": {"micro_batch_tokens": 16}},
    "curricula": {
        "train": {
            "seq_length_schedule": "0:8,0.3:12,0.7:16",
            "batch_tokens_schedule": "0:32,0.55:96",
        },
        "masking": {"rate": 0.4, "final_rate": 0.1, "strategy": "words"},
    },
    "replaced tokens": {
        "model": {"preset": "electra", "embedding_size": 12},
        "objective": {"name": "rtd", "generator_share": 0.5},
        "train": {"ema_decay": 0.99, "micro_batch_tokens": 32},
    },
}


def make_run(
    folder: Path | None, recorder: Recorder, train: dict[str, Any] | None = None, **more: Any
) -> Trainer:
    return make_trainer(folder, recorder, train={"max_steps": 10, **(train or {})}, **more)


def restore_newest(trainer: Trainer, folder: Path) -> Trainer:
    checkpoint, _ = find_newest(folder)
    assert checkpoint is not None
    trainer.restore(checkpoint)
    return trainer


def run_interrupted(folder: Path, stops: list[int], variant: dict[str, Any]) -> Trainer:
    """Trains to the end, with a stop and a new trainer (as in a new process) at each of `stops`."""
    for number, stop in enumerate(stops):
        trainer = make_run(folder, Recorder(stop), **variant)
        if number:
            restore_newest(trainer, folder)
        assert trainer.fit() is not None
        assert trainer.state.step == stop
    trainer = restore_newest(make_run(folder, Recorder(), **variant), folder)
    assert trainer.fit() is None
    return trainer


def tensors_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    averages = trainer.average.averages if trainer.average else {}
    return {
        **dict(trainer.model.named_parameters()),
        **trainer.optimizers.state_tensors(),
        **{f"average/{name}": tensor for name, tensor in averages.items()},
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, variant: str) -> None:
    whole = make_run(None, Recorder(), **VARIANTS[variant])
    whole.fit()
    resumed = run_interrupted(tmp_path, [5], VARIANTS[variant])
    expected, actual = tensors_of(whole), tensors_of(resumed)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    first, second = (
        {name: v for name, v in trainer.state.to_json().items() if "seconds" not in name}
        for trainer in (whole, resumed)
    )
    assert first == second


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    whole = make_run(None, Recorder())
    whole.fit()
    resumed = run_interrupted(tmp_path, [1, 2, 5, 9], {})
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


CLOCKS = {"seconds", "startup_seconds", "validation_seconds", "tokens_per_second"}


def without_clocks(*recorders: Recorder) -> list[dict[str, Any]]:
    records = (record for recorder in recorders for record in recorder.records)
    return [{k: v for k, v in record.items() if k not in CLOCKS} for record in records]


@pytest.mark.parametrize("log_every_steps", [1, 3])
def test_records_after_a_resumption_are_the_same(tmp_path: Path, log_every_steps: int) -> None:
    """Of three steps, also where the stop comes after the first of them."""
    train = {"log_every_steps": log_every_steps}
    whole, first, second = Recorder(), Recorder(4), Recorder()
    make_run(None, whole, train).fit()
    make_run(tmp_path, first, train).fit()
    restore_newest(make_run(tmp_path, second, train), tmp_path).fit()
    assert without_clocks(first, second) == without_clocks(whole)


def test_compiling_again_takes_no_step_from_a_budget_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 85 seconds; the first step of a process takes 50, and each other one second."""
    now, apply = [0.0], StepParts.apply_gradients
    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    took = {"seconds": 50.0}

    def apply_in_time(parts: StepParts, own: torch.Tensor) -> StepFigures:
        now[0] += took["seconds"]
        took["seconds"] = 1.0
        return apply(parts, own)

    monkeypatch.setattr(StepParts, "apply_gradients", apply_in_time)
    train = {"max_steps": None, "max_minutes": 85 / 60}
    whole, first, second = Recorder(), Recorder(12), Recorder()
    make_trainer(None, whole, train=train).fit()
    for recorder in (first, second):
        took["seconds"] = 50.0
        trainer = make_trainer(tmp_path, recorder, train=train)
        if recorder is second:
            restore_newest(trainer, tmp_path)
        trainer.fit()
    records = [*first.of("train"), *second.of("train")]
    assert [record["step"] for record in records] == list(range(1, len(whole.of("train")) + 2))
    rates = [record["learning_rate"] for record in records]
    peak = max(rates)
    assert all(abs(a - b) < 0.1 * peak for a, b in pairwise(rates[3:]))
    assert rates[-1] < 0.1 * peak


def test_another_seed_is_another_run() -> None:
    runs = [make_trainer(None, Recorder(), seed=seed, train={"max_steps": 1}) for seed in (0, 1)]
    for run in runs:
        run.fit()
    a, b = (next(iter(run.model.parameters())) for run in runs)
    assert not torch.equal(a, b)


def test_an_extended_run_validates_to_its_new_end(tmp_path: Path) -> None:
    make_trainer(tmp_path, Recorder(), train={"max_steps": 4, "num_validations": 2}).fit()
    recorder = Recorder()
    trainer = make_trainer(tmp_path, recorder, train={"max_steps": 8, "num_validations": 2})
    restore_newest(trainer, tmp_path).fit()
    assert [record["step"] for record in recorder.of("valid")] == [8]
    assert trainer.last_scores == recorder.of("valid")[-1]


def test_an_extended_run_reads_the_rows_of_an_uninterrupted_one(tmp_path: Path) -> None:
    make_trainer(tmp_path, Recorder(), train={"max_steps": 5}).fit()
    extended = restore_newest(make_run(tmp_path, Recorder()), tmp_path)
    extended.fit()
    whole = make_run(None, Recorder())
    whole.fit()
    assert extended.state.position == whole.state.position
    assert extended.state.tokens == whole.state.tokens


def test_averaging_can_begin_when_a_run_is_resumed(tmp_path: Path) -> None:
    make_trainer(tmp_path, Recorder(), train={"max_steps": 4}).fit()
    trainer = make_trainer(tmp_path, Recorder(), train={"max_steps": 8, "ema_decay": 0.9})
    restore_newest(trainer, tmp_path)
    assert trainer.average is not None
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(trainer.average.averages[name], parameter)
