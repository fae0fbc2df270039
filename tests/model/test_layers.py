"""Normalization, dropout, and rotary positions."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from maskwright.model.config import Activation
from maskwright.model.fused import draw_factors, drop, normalize_plainly, rotate, rotate_plainly
from maskwright.model.layers import (
    ACTIVATIONS,
    MLP,
    Dropout,
    GatedMLP,
    RMSNorm,
    rotary_angles,
    sinusoids,
)
from tests.model.helpers import tiny_config


def test_rms_norm_is_torchs_and_computes_in_fp32() -> None:
    norm, x = RMSNorm(8, 1e-5), torch.randn(5, 8)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, 8))
    torch.testing.assert_close(norm(x), F.rms_norm(x, (8,), norm.weight, 1e-5))
    large = torch.full((1, 8), 300.0, dtype=torch.float16)  # its square overflows in fp16
    torch.testing.assert_close(norm(large)[0], norm.weight)


@pytest.mark.parametrize("shape", [(7, 8), (5, 3, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])  # bf16: FSDP's
def test_rms_norm_is_its_formula_with_its_gradients(
    shape: tuple[int, ...], dtype: torch.dtype, weight_dtype: torch.dtype
) -> None:
    norm = RMSNorm(8, 1e-5).to(weight_dtype)
    tolerance = 1e-5 if dtype == weight_dtype == torch.float32 else 5e-2
    torch.nn.init.normal_(norm.weight)
    x = (3 * torch.randn(shape)).to(dtype).requires_grad_()
    y, expected = norm(x), normalize_plainly(x, norm.weight, 1e-5)
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected, atol=tolerance, rtol=tolerance)
    direction = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, norm.weight), direction)
    wanted = torch.autograd.grad(expected, (x, norm.weight), direction)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_is_its_formula_with_its_gradient(dtype: torch.dtype) -> None:
    fused = torch.randn(6, 3, 2, 8).to(dtype).requires_grad_()
    x = fused.unbind(1)[1]  # as attention takes the keys from one product with the queries
    angles = rotary_angles(torch.arange(6), 8, 100.0)
    y, expected = rotate(x, angles), rotate_plainly(x, *angles)
    assert y.dtype == expected.dtype == dtype
    torch.testing.assert_close(y, expected)
    direction = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, direction)
    (wanted,) = torch.autograd.grad(expected, x, direction)
    # bf16: the formula rounds each of two terms, ours their sum
    torch.testing.assert_close(found, wanted, atol=0.05 if dtype != torch.float32 else 1e-6, rtol=0)


def test_sinusoids_are_those_of_the_paper() -> None:
    found = sinusoids(torch.tensor([0, 3]), 4)
    assert found[0].tolist() == [0.0, 0.0, 1.0, 1.0]
    angles = torch.tensor([3.0, 3.0 / 100])
    torch.testing.assert_close(found[1], torch.cat((angles.sin(), angles.cos())))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_mlps_are_their_equations(name: Activation) -> None:
    x = torch.randn(3, 32)
    plain = MLP(tiny_config(preset="bert", hidden_act=name, hidden_dropout=0.0))
    inner = ACTIVATIONS[name](F.linear(x, plain.input.weight, plain.input.bias))
    expected = F.linear(inner, plain.output.weight, plain.output.bias)
    torch.testing.assert_close(plain(x), expected)
    gated = GatedMLP(tiny_config(hidden_act=name))
    first, second = gated.input.weight.chunk(2)
    expected = F.linear(ACTIVATIONS[name](x @ first.T) * (x @ second.T), gated.output.weight)
    torch.testing.assert_close(gated(x), expected)


@given(st.floats(0.01, 0.99), st.integers(0, 100))
def test_dropout_drops_that_share_and_keeps_the_mean(probability: float, seed: int) -> None:
    factors = draw_factors(torch.tensor(seed), (100, 201), probability)
    kept = factors[factors != 0]
    torch.testing.assert_close(
        kept, torch.full_like(kept, 1 / (1 - probability)), atol=0, rtol=1e-3
    )
    spread = (probability * (1 - probability) / factors.numel()) ** 0.5
    assert abs(1 - len(kept) / factors.numel() - probability) < 6 * spread


def test_neighbours_are_dropped_independently() -> None:
    dropped = (draw_factors(torch.tensor(0), (200_000,), 0.3) == 0).double()
    for distance in (1, 2, 3, 4, 8):
        both = (dropped[:-distance] * dropped[distance:]).mean()
        assert abs(both.item() - 0.09) < 0.005, distance


def test_draws_follow_torchs_generator() -> None:
    x = torch.ones(50)
    torch.manual_seed(3)
    first, second = drop(x, 0.5), drop(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_pass_where_values_do(dtype: torch.dtype) -> None:
    x = torch.ones(300, dtype=dtype, requires_grad=True)
    dropped = drop(x, 0.25)
    assert dropped.dtype == dtype
    dropped.backward(torch.ones_like(dropped))
    assert x.grad is not None
    assert torch.equal(x.grad, dropped.detach())
    assert set(x.grad.unique().tolist()) == {0.0, torch.tensor(4 / 3, dtype=dtype).item()}


def test_nothing_is_dropped_in_evaluation_or_with_probability_0() -> None:
    x = torch.randn(20)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert not torch.equal(Dropout(0.5)(x), x)


def test_even_the_smallest_share_survives_the_largest_probability() -> None:
    factors = draw_factors(torch.tensor(1), (2**20,), 1 - 1e-9)
    assert factors.isfinite().all()
    assert (factors != 0).float().mean() < 1e-4


def test_compiled_each_call_draws_anew() -> None:
    x = torch.ones(400, requires_grad=True)
    twice = torch.compile(lambda x: (drop(x, 0.5), drop(x, 0.5)), backend="aot_eager")
    first, second = twice(x)
    assert not torch.equal(first, second)
    assert not torch.equal(first, twice(x)[0])
    first.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, first.detach())
