import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maskwright.model.fused import sum_cross_entropy, sum_cross_entropy_plainly


def draw(rows: int, classes: int, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits with large and with equal ones among them, and labels, a third of them unused."""
    generator = torch.Generator().manual_seed(seed)
    logits = 20 * torch.randn(rows, classes, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    labels[torch.rand(rows, generator=generator) < 1 / 3] = -100
    return logits.round(decimals=0).to(dtype), labels


def with_gradient(sums: tuple[Tensor, Tensor], logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(3 * sums[0], logits)
    return *sums, gradient


@given(st.integers(1, 9), st.integers(2, 40), st.integers(0, 99))
def test_the_fast_sums_and_gradients_are_those_of_the_formula(
    rows: int, classes: int, seed: int
) -> None:
    logits, labels = draw(rows, classes, seed, torch.float32)
    logits.requires_grad_()
    expected = with_gradient(sum_cross_entropy_plainly(logits, labels), logits)
    found = with_gradient(sum_cross_entropy(logits, labels), logits)
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_bf16_logits_are_summed_in_fp32() -> None:
    logits, labels = draw(50, 300, 0, torch.bfloat16)
    logits.requires_grad_()
    expected = with_gradient(sum_cross_entropy_plainly(logits, labels), logits)
    found = with_gradient(sum_cross_entropy(logits, labels), logits)
    assert found[0].dtype is torch.float32
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1]
    torch.testing.assert_close(found[2], expected[2], atol=0.01, rtol=0.01)


@pytest.mark.parametrize("sums", [sum_cross_entropy, sum_cross_entropy_plainly])
def test_right_is_where_no_other_class_scores_higher(sums) -> None:
    logits = torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [5.0, 5.0, 0.0], [9.0, 0.0, 0.0]])
    assert sums(logits, torch.tensor([1, 0, 1, -100]))[1] == 2
