"""Recorded steps: on a CPU, where a "graph" computes its work again, and what a real one needs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from maskwright.config import from_mapping
from maskwright.data.config import MaskingConfig
from maskwright.data.loader import LoadedStep, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Parallel
from maskwright.distributed.world import ALONE
from maskwright.errors import ConfigError
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.objectives.mlm import MaskedTokensLoss
from maskwright.optim.build import build_optimizers
from maskwright.optim.config import OptimConfig
from maskwright.optim.muon import Muon
from maskwright.pretraining.build import distribute
from maskwright.train.capture import CapturedSteps, Replay, check_close, zero_all
from maskwright.train.config import TrainConfig
from maskwright.train.device import should_capture
from maskwright.train.step import (
    StepFigures,
    StepParts,
    add_gradients,
    clip_gradients,
    count_predictions,
    scale_losses,
)
from maskwright.train.trainer import Trainer
from maskwright.train.weight_average import WeightAverage
from tests.helpers import random_corpus, row_source
from tests.models import small_model
from tests.train.helpers import Recorder, make_trainer

TRAIN = {"max_steps": 8, "micro_batch_tokens": 64, "ema_decay": 0.9}
# An operator, with what is no tensor among its arguments.
Call = tuple[str, str]


def compute_again(work: Callable[[], None]) -> Replay:
    return work


def capture(trainer: Trainer, record: Callable[[Callable[[], None]], Replay]) -> CapturedSteps:
    captured = CapturedSteps(trainer._parts, trainer.reporter.say, record)
    trainer.__dict__["_capture"] = captured
    return captured


def weights_of(trainer: Trainer) -> torch.Tensor:
    assert trainer.average is not None
    tensors = [*trainer.model.parameters(), *trainer.average.averages.values()]
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@pytest.mark.parametrize("schedule", [(), ("0:8", "0.5:16")])
def test_recorded_steps_are_ordinary_steps(schedule: tuple[str, ...]) -> None:
    runs: list[tuple[torch.Tensor, list[Any]]] = []
    for record in (None, compute_again):
        recorder = Recorder()
        trainer = make_trainer(None, recorder, train={**TRAIN, "seq_length_schedule": schedule})
        captured = capture(trainer, record) if record else None
        trainer.fit()
        runs.append((weights_of(trainer), [line["loss"] for line in recorder.of("train")]))
        if captured is not None:
            assert captured.failure == ""
            assert len(captured._graphs) > 0
    (ordinary, losses), (recorded, recorded_losses) = runs
    assert torch.equal(ordinary, recorded)
    assert losses == recorded_losses


def compute_once(work: Callable[[], None]) -> Replay:
    work()
    return lambda: None


def fail(_work: Callable[[], None]) -> Replay:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("record", [compute_once, fail])
def test_a_graph_that_is_wrong_or_fails_is_named_and_not_used(
    record: Callable[[Callable[[], None]], Replay],
) -> None:
    expected, trainer = make_trainer(train=TRAIN), make_trainer(train=TRAIN)
    captured, lines = capture(trainer, record), list[str]()
    captured.say = lines.append
    expected.fit()
    trainer.fit()
    assert captured.failure
    assert len(lines) == 1
    assert torch.equal(weights_of(expected), weights_of(trainer))


@pytest.mark.parametrize("off", [[0.02, 0.0], [0.0, 1.0], [float("nan"), 0.0]])
def test_other_figures_are_noticed(off: list[float]) -> None:
    """More than 1 % of a figure, beside four times the noise."""
    check_close("figure", [0.0099, 0.0], [1.0, 2.0], [0.0, 0.0])
    check_close("weight", [0.03, 0.0], [1.0, 2.0], [0.01, 0.0])
    with pytest.raises(RuntimeError, match="figure"):
        check_close("figure", off, [1.0, 2.0], [0.0, 0.0])


class Recording(TorchDispatchMode):
    """Operators and their constants, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = tree_leaves((args, kwargs or {}))
        constants = [value for value in values if not isinstance(value, torch.Tensor)]
        if func.namespace != "profiler":
            self.calls.append((str(func), repr(constants)))
        return func(*args, **(kwargs or {}))


def load(seed: int, rate: float, row_length: int = 16) -> LoadedStep:
    source = row_source(random_corpus(300, seed=seed), masking=MaskingConfig(rate=0.3))
    loaded = source.load(StepRequest(row_length, 8, 4, rate), DataPosition(row_length))
    batches = (batch.with_bounds(64) for batch in loaded.micro_batches)
    return replace(loaded, micro_batches=tuple(batches))


def make_parts() -> StepParts:
    model = small_model(num_hidden_layers=2)
    loss = MaskedTokensLoss(model)
    optimizers = build_optimizers(
        OptimConfig(name="muon"), model.named_parameters(), count_stacked_matrices(model)
    )
    average, parallel = WeightAverage(model, 0.9), Parallel(loss)
    what = (model, parallel, loss.terms, optimizers, average, ALONE, torch.device("cpu"))
    return StepParts(*what, precision="fp32", grad_clip=1.0)


def test_no_constant_of_a_recorded_step_changes_from_step_to_step() -> None:
    """Rates, counts, seeds and texts differ; operators and all that is no tensor do not."""
    parts = make_parts()
    recorded: list[list[Call]] = []
    for number, (scale, rate) in enumerate(((1.0, 0.3), (0.9, 0.3), (0.3, 0.1))):
        loaded = load(number, rate)
        counts = count_predictions(loaded, parts.terms)
        parts.set_rates(scale, step=7 * number)
        scales, sums = scale_losses(parts.terms, counts), torch.zeros(1, 2)
        with Recording() as recording:
            for batch in loaded.micro_batches:
                sums += add_gradients(parts.parallel, batch, scales, "fp32")
            parts.apply_gradients(sums)
            zero_all(parts.gradients())
        recorded.append(recording.calls)
    assert recorded[1] == recorded[2]  # the first one makes the optimizers' state
    assert len(recorded[1]) > 100


def test_nothing_is_read_by_the_host() -> None:
    """On `meta` there are no values: reading one is an error."""
    model, meta = small_model(num_hidden_layers=2), torch.device("meta")
    model.to_empty(device=meta)
    loss, batch = MaskedTokensLoss(model), load(1, 0.3).micro_batches[0].to(meta)
    scales = torch.empty(2, 1, device=meta)
    sums = add_gradients(Parallel(loss), batch, scales, "fp32")
    norm = clip_gradients(model, 1.0, Parallel(loss))
    stacked = count_stacked_matrices(model)
    matrices = {
        name: p
        for name, p in model.encoder.blocks.named_parameters("encoder.blocks")
        if p.ndim == 2
    }
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "num_steps": 5}
    muon = Muon(list(matrices.values()), [stacked.get(name, 1) for name in matrices], **settings)
    muon.found_inf = (~StepFigures.join(sums, norm).is_good).float()
    muon.step()
    assert muon.state[matrices["encoder.blocks.0.mlp.output.weight"]]["momentum_buffer"].is_meta


def count_operators(layers: int, beta2: float = 0.0) -> int:
    model = small_model(num_hidden_layers=layers)
    config = OptimConfig(name="muon", muon_beta2=beta2)
    hidden = count_stacked_matrices(model)
    optimizers = build_optimizers(config, model.named_parameters(), hidden, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step(torch.tensor(True))
    with Recording() as recording:
        clip_gradients(model, 1.0, Parallel(MaskedTokensLoss(model)))
        optimizers.step(torch.tensor(True))
    return len(recording.calls)


def test_the_update_of_deep_models_takes_as_many_operators_as_that_of_shallow_ones() -> None:
    assert count_operators(12) == count_operators(2) <= 120
    assert count_operators(12, beta2=0.95) == count_operators(2, beta2=0.95)


@pytest.mark.parametrize("train", [{"capture": "on"}, {"capture": "on", "parallel": "fsdp"}])
def test_capture_on_needs_a_gpu_and_whole_weights(train: dict[str, str]) -> None:
    config = from_mapping(TrainConfig, train)
    device = torch.device("cuda" if config.parallel == "fsdp" else "cpu")
    with pytest.raises(ConfigError, match=r"train\.capture"):
        should_capture(config, device)
    assert not should_capture(TrainConfig(), torch.device("cpu"))
    assert should_capture(TrainConfig(), torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiles", [False, True])
def test_steps_recorded_on_a_gpu_are_ordinary_steps(compiles: bool) -> None:
    """12 steps of two micro-batches in bf16, of two row lengths."""
    device, lines = torch.device("cuda"), list[str]()
    found: list[torch.Tensor] = []
    for captures in (False, True):
        config = from_mapping(TrainConfig, {"device": "cuda"})
        model = small_model(hidden_size=64, num_attention_heads=1, num_hidden_layers=2)
        initialize(model, 0)
        loss = MaskedTokensLoss(model)
        parallel = distribute(config, loss, model, ALONE, device, compiles, captures)
        hidden = count_stacked_matrices(model)
        optimizers = build_optimizers(
            OptimConfig(name="muon", muon_beta2=0.95),
            model.named_parameters(),
            hidden,
            dtype=torch.bfloat16,
        )
        average = WeightAverage(model, 0.9)
        what = (model, parallel, loss.terms, optimizers, average, ALONE, device)
        parts = StepParts(*what, precision="bf16", grad_clip=1.0)
        captured = CapturedSteps(parts, lines.append) if captures else None
        for step in range(12):
            loaded = load(step, 0.3, row_length=8 if step < 6 else 16)
            parts.set_rates(1 - step / 20, step)
            pinned = replace(loaded, micro_batches=tuple(b.pin() for b in loaded.micro_batches))
            (captured or parts).run(pinned, count_predictions(loaded, loss.terms)).read()
        if captured is not None:
            assert captured.failure == "", lines
            assert len(captured._graphs) == 1
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]).cpu())
        initialize(model, 0)
        start = torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()
    ordinary, recorded = found
    assert (recorded - ordinary).norm() < 0.02 * (ordinary - start).norm()
