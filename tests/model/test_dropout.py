import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.model.layers import Dropout, draw_factors, drop


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
