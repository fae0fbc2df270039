import pytest
import torch
from torch import Tensor

from maskwright.attention_context import AttentionContext, context_from_lengths
from maskwright.model.attention import attend, choose_backend
from maskwright.model.config import AttentionBackend
from tests.model.helpers import RAGGED_ROWS, pack

CONTEXTS = {
    "ragged": pack(RAGGED_ROWS),
    "padded rows": context_from_lengths([7, 12, 3], row_length=12),
    "one token": context_from_lengths([1]),
    "full rows": context_from_lengths([6, 6]),
}
WINDOWS = (None, 0, 1, 2, 3, 100)


def draw_qkv(tokens: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, tokens, 2, 8, generator=generator)
    return [x.to(device, dtype).requires_grad_() for x in drawn]


def attend_with_gradients(
    context: AttentionContext, window: int | None, backend: AttentionBackend, qkv: list[Tensor]
) -> list[Tensor]:
    q, k, v = qkv
    out = attend(q, k, v, context, window, backend=backend)
    weights = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad((out * weights).sum(), qkv)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("backend", ["products", "sdpa", "auto"])
def test_backends_equal_the_reference(
    name: str, window: int | None, backend: AttentionBackend
) -> None:
    context = CONTEXTS[name]
    tokens = len(context.positions)
    expected = attend_with_gradients(context, window, "reference", draw_qkv(tokens))
    found = attend_with_gradients(context, window, backend, draw_qkv(tokens))
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("backend", ["sdpa", "varlen"])
def test_cuda_backends_equal_the_reference(
    name: str, window: int | None, backend: AttentionBackend
) -> None:
    context = CONTEXTS[name].to("cuda")
    tokens = len(context.positions)
    half = [draw_qkv(tokens, torch.bfloat16, "cuda") for _ in range(2)]
    expected = attend_with_gradients(context, window, "reference", half[0])
    found = attend_with_gradients(context, window, backend, half[1])
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)


def test_reference_is_softmax_over_the_own_segment_and_window() -> None:
    context = pack(((2, 3),))
    q, k, v = (x.detach() for x in draw_qkv(5))
    found = attend(q, k, v, context, window=1, backend="reference")
    seen = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3, 4], 4: [3, 4]}
    for token, keys in seen.items():
        for head in range(2):
            scores = torch.stack([q[token, head] @ k[key, head] for key in keys]) / 8**0.5
            expected = scores.softmax(0) @ v[keys, head]
            torch.testing.assert_close(found[token, head], expected)


@pytest.mark.parametrize("backend", ["reference", "products", "sdpa"])
def test_dropout_changes_the_result_and_keeps_its_mean(backend: AttentionBackend) -> None:
    context = context_from_lengths([8])
    q, k, v = (x.detach() for x in draw_qkv(8))
    torch.manual_seed(0)
    plain = attend(q, k, v, context, backend=backend)
    dropped = torch.stack([attend(q, k, v, context, None, 0.5, backend) for _ in range(400)])
    assert not torch.allclose(dropped[0], plain)
    torch.testing.assert_close(dropped.mean(0), plain, atol=0.25, rtol=0)


def test_a_backend_is_chosen_only_where_it_runs_and_is_fast() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert choose_backend(cuda, torch.bfloat16, 0.0, 64, 64) == "varlen"
    assert choose_backend(cuda, torch.bfloat16, 0.1, 64, 64) == "sdpa"
    assert choose_backend(cuda, torch.bfloat16, 0.0, 64, 20) == "sdpa"
    assert choose_backend(cuda, torch.bfloat16, 0.0, 64, 264) == "sdpa"
    assert choose_backend(cuda, torch.float32, 0.0, 64, 64) == "sdpa"
    assert choose_backend(cpu, torch.float32, 0.0, 64, 64) == "sdpa"
    assert choose_backend(cpu, torch.bfloat16, 0.0, 64, 20) == "products"
    assert choose_backend(cpu, torch.float32, 0.1, 512, 64) == "products"
    assert choose_backend(cpu, torch.bfloat16, 0.0, 512, 64) == "sdpa"
    with torch.no_grad():
        assert choose_backend(cpu, torch.bfloat16, 0.0, 64, 64) == "sdpa"
