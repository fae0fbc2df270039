from typing import Literal

import pytest
import torch
from torch import Tensor

from maskwright.errors import CheckpointError
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.optim.build import Optimizers, build_optimizers
from maskwright.optim.config import OptimConfig
from maskwright.optim.groups import divide_parameters
from maskwright.optim.muon import Muon
from tests.models import small_model

Name = Literal["muon", "adamw"]


def build(model: MaskedLanguageModel, name: Name = "muon") -> Optimizers:
    config = OptimConfig(name=name, weight_decay=0.3)
    return build_optimizers(config, model.named_parameters(), count_stacked_matrices(model))


def set_gradients(model: MaskedLanguageModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def owned(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@pytest.mark.parametrize("name", ["muon", "adamw"])
@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
def test_every_parameter_has_exactly_one_optimizer(name: Name, preset: str) -> None:
    model = small_model(preset=preset)
    all_owned = [id(p) for optimizer in build(model, name).optimizers for p in owned(optimizer)]
    assert sorted(all_owned) == sorted(id(p) for p in model.parameters())


def test_build_optimizers_gives_muon_the_hidden_matrices_and_nothing_else() -> None:
    model = small_model(preset="bert")
    muon = next(o for o in build(model).optimizers if isinstance(o, Muon))
    hidden = divide_parameters({p: name for name, p in model.named_parameters()}).hidden
    assert [id(p) for p in owned(muon)] == [id(p) for p in hidden]
    assert len(hidden) == 9
    assert len(build(model, "adamw").optimizers) == 1


@pytest.mark.parametrize("name", ["muon", "adamw"])
@pytest.mark.parametrize(("decay", "keeps"), [(0.0, True), (0.01, False)])
def test_no_decay_is_no_decay(name: Name, decay: float, keeps: bool) -> None:
    """Zero is a value, not a missing one: without gradients nothing moves."""
    model = small_model(preset="bert")
    config = OptimConfig(name=name, weight_decay=decay, muon_weight_decay=decay)
    stacked = count_stacked_matrices(model)
    optimizers = build_optimizers(config, model.named_parameters(), stacked)
    groups = [group for one in optimizers.optimizers for group in one.param_groups]
    assert {group["weight_decay"] for group in groups} == {0.0, decay}
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    kept = {n for n, p in model.named_parameters() if torch.equal(p, before[n])}
    matrices = {n for n, p in model.named_parameters() if p.ndim >= 2 and before[n].any()}
    assert kept >= before.keys() - matrices
    assert bool(kept & matrices) == keeps
    assert keeps == (kept >= matrices)


def test_learning_rates_are_scaled_from_their_peaks() -> None:
    optimizers = build(small_model())
    optimizers.scale_learning_rates(0.5)
    optimizers.scale_learning_rates(0.1)
    rates = [float(group["lr"]) for o in optimizers.optimizers for group in o.param_groups]
    assert sorted(set(rates)) == pytest.approx([3e-4, 2e-3])
    assert optimizers.peak_learning_rate == 3e-3


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_state_goes_round_through_tensors(name: Name) -> None:
    first, second = small_model(), small_model()
    before, after = build(first, name), build(second, name)
    for step in range(3):
        set_gradients(first, step)
        before.step()
    second.load_state_dict(first.state_dict())
    saved = before.state_tensors()
    allocated = after.allocate_state({name: tensor.shape for name, tensor in saved.items()})
    assert allocated.keys() == saved.keys()
    for state_name, tensor in allocated.items():
        assert tensor.dtype == saved[state_name].dtype
        tensor.copy_(saved[state_name])
    for model, optimizers in ((first, before), (second, after)):
        set_gradients(model, 9)
        optimizers.step()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_is_named_by_slot_and_parameter() -> None:
    model = small_model()
    optimizers = build(model)
    assert optimizers.state_tensors() == {}
    set_gradients(model, 0)
    optimizers.step()
    names = set(optimizers.state_tensors())
    assert "momentum_buffer/encoder.blocks.0.attention.qkv.weight" in names
    assert {"exp_avg/encoder.embeddings.word.weight", "step/encoder.embeddings.word.weight"} < names
    optimizers.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "key",
    [
        "exp_avg/nobody",
        "exp_avg/head.transform.dense.weight",  # as before this matrix was Muon's
        "momentum_buffer/encoder.embeddings.word.weight",
    ],
)
def test_allocate_state_refuses_what_belongs_to_no_parameter_or_another_optimizer(key: str) -> None:
    with pytest.raises(CheckpointError, match=key):
        build(small_model(preset="modernbert")).allocate_state({key: torch.Size([16, 16])})
