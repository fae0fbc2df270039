"""The same global batch, masks and losses, however many ranks there are and however it is cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.train.checkpoint import find_newest
from tests.distributed.work import Outcome, train, train_spoiled
from tests.distributed.worlds import alone, run_world

# 11 rows a step: uneven shares, and short rows of which some have nothing to predict.
NO_DROPOUT = {f"{name}_dropout": 0.0 for name in ("embedding", "attention", "hidden")}
NUM_STEPS, STOPS = 12, (4, 8, None)
RAGGED = {"train": {"batch_tokens": 176, "max_steps": NUM_STEPS}, "masking": {"rate": 0.1}}


def options(parallel: str, **more: dict[str, Any]) -> dict[str, Any]:
    sections = {name: {**RAGGED.get(name, {}), **more.get(name, {})} for name in {*RAGGED, *more}}
    sections["train"]["parallel"] = parallel
    return sections


@pytest.fixture(scope="module")
def expected() -> Outcome:
    """The run in one process."""
    return alone(train, options("ddp"))


def assert_same_run(outcome: Outcome, expected: Outcome) -> None:
    assert np.allclose(outcome.losses, expected.losses, rtol=0, atol=1e-5)
    assert_same_weights(outcome, expected)


def assert_same_weights(outcome: Outcome, expected: Outcome) -> None:
    assert outcome.weights is not None
    assert expected.weights is not None
    assert outcome.weights.keys() == expected.weights.keys()
    for name, weights in expected.weights.items():
        # Muon divides by the norm of a gradient, which magnifies rounding where it is small.
        assert np.allclose(outcome.weights[name], weights, rtol=0, atol=2e-4), name


@pytest.mark.parametrize(
    ("size", "parallel"), [(2, "ddp"), (4, "ddp"), (2, "fsdp"), (4, "fsdp"), (4, "hsdp")]
)
def test_losses_do_not_depend_on_the_number_of_ranks(
    size: int, parallel: str, expected: Outcome
) -> None:
    assert len(expected.losses) == NUM_STEPS
    outcomes = run_world(size, train, options(parallel))
    for outcome in outcomes:
        assert outcome.losses == outcomes[0].losses  # all ranks know the loss of all
    assert np.allclose(outcomes[0].losses, expected.losses, rtol=0, atol=3e-6)
    assert_same_weights(outcomes[0], expected)
    assert [outcome.weights is None for outcome in outcomes] == [False] + [True] * (size - 1)
    counts = np.array([outcome.predictions for outcome in outcomes])
    assert counts.sum(axis=0).tolist() == expected.predictions
    assert (counts != counts[0]).any(axis=0).mean() > 0.5  # ragged in most steps


@pytest.mark.parametrize("micro", [None, 32])
def test_recorded_ranks_sum_their_gradients_themselves(
    micro: int | None, expected: Outcome
) -> None:
    recorded = {**options("ddp", train={"micro_batch_tokens": micro}), "captures": True}
    for outcome in run_world(2, train, recorded):
        assert np.allclose(outcome.losses, expected.losses, rtol=0, atol=1e-5)
        if outcome.weights is not None:
            assert_same_weights(outcome, expected)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_rank_may_have_nothing_to_predict(parallel: str) -> None:
    three_rows = {"train": {"batch_tokens": 48, "max_steps": NUM_STEPS, "parallel": parallel}}
    outcomes = run_world(4, train, three_rows)
    assert outcomes[3].predictions == [0] * NUM_STEPS
    assert_same_run(outcomes[0], alone(train, three_rows))


@pytest.mark.parametrize(("size", "parallel"), [(2, "ddp"), (2, "fsdp"), (4, "hsdp")])
def test_losses_do_not_depend_on_micro_batches(size: int, parallel: str, expected: Outcome) -> None:
    cut = options(parallel, train={"micro_batch_tokens": 64 // size})
    assert_same_run(run_world(size, train, cut)[0], expected)
    assert_same_run(alone(train, cut), expected)


def test_64_rows_at_once_are_8_times_8() -> None:
    whole = {"train": {"batch_tokens": 1024}}
    cut = {"train": {"batch_tokens": 1024, "micro_batch_tokens": 128}}
    assert_same_run(alone(train, cut), alone(train, whole))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_activations_computed_twice_are_the_same(parallel: str, expected: Outcome) -> None:
    twice = options(parallel, train={"activation_checkpointing": True})
    assert_same_run(run_world(2, train, twice)[0], expected)


def test_tokens_are_replaced_alike_on_any_number_of_ranks() -> None:
    detection = options(
        "ddp",
        objective={"name": "rtd", "generator_share": 0.5},
        model={"preset": "electra", "embedding_size": 12, **NO_DROPOUT},
    )
    expected = alone(train, detection)
    assert expected.weights is not None
    assert "discriminator.head.output.weight" in expected.weights
    assert_same_run(run_world(2, train, detection)[0], expected)
    detection["train"]["micro_batch_tokens"] = 32
    assert_same_run(alone(train, detection), expected)


def test_ranks_draw_dropout_of_their_own_and_stay_together() -> None:
    dropout = {"model": {"hidden_dropout": 0.3}, "train": {"parallel": "ddp"}}
    first, second = run_world(2, train, dropout)
    assert first.losses == second.losses
    assert not np.allclose(first.losses, alone(train, dropout).losses, atol=1e-5)


@pytest.mark.parametrize(
    "stages",
    [
        [(4, "ddp"), (2, "ddp"), (1, "ddp")],
        [(4, "fsdp"), (2, "fsdp"), (1, "fsdp")],
        [(1, "ddp"), (2, "fsdp"), (2, "ddp")],
        [(4, "hsdp"), (3, "fsdp"), (4, "hsdp")],
    ],
    ids=["ddp", "fsdp", "mixed", "hsdp"],
)
def test_the_number_of_ranks_may_change_when_a_run_goes_on(
    tmp_path: Path, stages: list[tuple[int, str]], expected: Outcome
) -> None:
    outcomes = [
        run_world(size, train, options(parallel), tmp_path, stop_at)[0]
        for (size, parallel), stop_at in zip(stages, STOPS, strict=True)
    ]
    assert [outcome.step for outcome in outcomes] == [4, 8, NUM_STEPS]
    losses = [loss for outcome in outcomes for loss in outcome.losses]
    assert np.allclose(losses, expected.losses, rtol=0, atol=1e-5)
    assert_same_weights(outcomes[-1], expected)


@pytest.mark.parametrize(("parallel", "beta2"), [("ddp", 0.0), ("fsdp", 0.9)])
def test_the_state_of_muon_is_read_by_more_ranks(
    tmp_path: Path, parallel: str, beta2: float
) -> None:
    given = options(parallel, optim={"muon_beta2": beta2})
    outcomes = [
        run_world(size, train, given, tmp_path / "changing", stop_at)[0]
        for size, stop_at in zip((1, 2, 3), STOPS, strict=True)
    ]
    expected = alone(train, given, tmp_path / "alone")
    assert_same_weights(outcomes[-1], expected)
    found, whole = (read_newest(tmp_path / name) for name in ("changing", "alone"))
    assert {name.split("/")[1] for name in whole if "blocks.0.mlp" in name} >= (
        {"momentum_buffer", "row_square"} if beta2 else {"momentum_buffer"}
    )
    assert found.keys() == whole.keys()
    for name, values in whole.items():
        assert found[name].shape == values.shape
        assert torch.allclose(found[name], values, rtol=0, atol=2e-4), name


def read_newest(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint, _ = find_newest(folder)
    assert checkpoint is not None
    assert checkpoint.step == NUM_STEPS
    tensors = {name: torch.zeros(shape) for name, shape in checkpoint.shapes.items()}
    checkpoint.read_into(tensors)
    return tensors


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_by_all() -> None:
    outcomes = run_world(2, train_spoiled, options("ddp"))
    assert [outcome.skipped_steps for outcome in outcomes] == [1, 1]
    assert outcomes[0].losses[:5] == outcomes[1].losses[:5]
    assert outcomes[0].losses[6:] == outcomes[1].losses[6:]
    assert np.isnan(outcomes[0].losses[5])
    assert np.isfinite(outcomes[0].losses[6:]).all()


def test_bf16_weights_are_gathered_and_master_weights_stay_fp32(expected: Outcome) -> None:
    half = options("fsdp", train={"precision": "bf16"})
    outcome = run_world(2, train, half)[0]
    assert np.allclose(outcome.losses, expected.losses, rtol=0, atol=0.02)
    assert not np.allclose(outcome.losses, expected.losses, rtol=0, atol=1e-5)
    assert outcome.weights is not None
    weights = next(iter(outcome.weights.values()))
    assert weights.dtype == np.float32
    assert (weights.view(np.uint32) & 0xFFFF).any()  # more digits than bf16 has


def test_averaged_weights_are_spread_and_saved_too(tmp_path: Path) -> None:
    averaged = options("fsdp", train={"ema_decay": 0.9})
    first = run_world(2, train, averaged, tmp_path, 9)[0]
    second = run_world(3, train, averaged, tmp_path)[0]
    expected = alone(train, averaged)
    assert np.allclose([*first.losses, *second.losses], expected.losses, rtol=0, atol=1e-5)
    assert_same_weights(second, expected)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_pairs_of_texts_are_learned_alike_on_any_number_of_ranks(parallel: str) -> None:
    paired = {**options(parallel, model={"preset": "bert", **NO_DROPOUT}), "pairs": "next"}
    outcome = run_world(2, train, paired)[0]
    assert_same_run(outcome, alone(train, paired))
    assert outcome.weights is not None
    assert outcome.weights["pair_head.classifier.bias"].any()  # which was 0
