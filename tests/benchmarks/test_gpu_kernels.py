"""Every part of `gpu_kernels` is the model's own way: on a CPU, compiled, interpreted, on a GPU."""

import runpy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import attention

from benchmarks import gpu_kernels
from benchmarks.gpu_variants import FLEX, GATE, PRODUCTS, ROTATION, Variant, applied
from maskwright.model.layers import rotary_angles
from tests.model.helpers import RAGGED_ROWS, pack, random_ids, tiny_model

# By torch while it compiles a block, and where FlexAttention is not compiled.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]
PLAIN = Variant()
PARTS = {
    "products": Variant(patches=(PRODUCTS,)),
    "gate": Variant(patches=(GATE,)),
    "rotation": Variant(patches=(ROTATION,)),
    "flex": Variant(patches=FLEX),
}
TRAINED = [name for name in PARTS if name != "flex"]  # which has no gradients on a CPU
CONTEXTS = (RAGGED_ROWS, ((12,), (6, 6), (11, 1)))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
compile_forward: Any = vars(torch)["compile"]  # torch types it in part


def encode(
    variant: Variant,
    compiler: str | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **fields: object,
) -> list[Tensor]:
    """Return the vectors of two packed batches, and the gradients of all weights if any."""
    model = tiny_model(local_attention=4, **fields).encoder.to(device)
    torch._dynamo.reset()
    found = list[Tensor]()
    with applied(variant), torch.autocast(device, dtype, enabled=dtype != torch.float32):
        for block in model.blocks if compiler else ():
            block.forward = compile_forward(block.forward, backend=compiler, dynamic=False)
        for rows in CONTEXTS:
            found.append(model(random_ids(36).to(device), pack(rows).to(device)))
    if torch.is_grad_enabled():
        directions = torch.linspace(-1, 1, found[0].numel(), device=device).view(found[0].shape)
        torch.stack([(out.float() * directions).sum() for out in found]).sum().backward()
        found += [p.grad for p in model.parameters() if p.grad is not None]
    return [tensor.float() for tensor in found]


def assert_near(found: list[Tensor], expected: list[Tensor], share: float) -> None:
    """Compare norms: the sum of a gradient's terms is rounded in another order."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() <= share * theirs.norm() + 1e-6


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_part_is_the_models_own_way_with_its_gradients(name: str, compiler: str | None) -> None:
    assert_near(encode(PARTS[name], compiler), encode(PLAIN), 1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_a_part_computes_in_the_precision_of_autocast(name: str) -> None:
    found, plain = (encode(part, dtype=torch.bfloat16) for part in (PARTS[name], PLAIN))
    assert_near(found, plain, 0.03)


@pytest.mark.parametrize("act", ["gelu_pytorch_tanh", "silu", "relu2"])
def test_gate_in_two_products_has_biases_dropout_and_any_activation(act: str) -> None:
    fields = {"mlp_bias": True, "mlp_dropout": 0.2, "hidden_act": act}
    assert_near(encode(PARTS["products"], **fields), encode(PLAIN, **fields), 1e-5)


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("gate", {"hidden_act": "silu"}),
        ("gate", {"mlp_dropout": 0.1}),
        ("gate", {"mlp_output_bias": True}),
        ("rotation", {"qk_norm": True}),
        ("rotation", {"positions": "learned"}),
    ],
)
def test_a_kernel_refuses_what_it_does_not_compute(part: str, fields: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="the kernel"):
        encode(PARTS[part], **fields)


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_flex_attention_is_attention_and_other_segments_compile_nothing(
    compiler: str | None,
) -> None:
    with torch.no_grad():
        expected = encode(PLAIN)
        torch._dynamo.utils.counters.clear()
        found = encode(PARTS["flex"], compiler, global_attn_every_n_layers=3)
    assert_near(found, expected, 1e-5)
    if compiler:  # the first block has no norm, the others are local
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def draw(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def angles(tokens: int, size: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    return rotary_angles(torch.arange(tokens, device=device), size, 100.0)


OPERATORS: dict[str, tuple[Any, Callable[..., tuple[Tensor, ...]]]] = {
    "gate": (gpu_kernels.gate_backward, lambda **on: (draw(5, 96, **on), draw(5, 48, **on))),
    "split": (
        gpu_kernels.split_rotated,
        lambda **on: (draw(5, 3, 2, 8, **on), *angles(5, 8, on.get("device", "cpu"))),
    ),
    "join": (
        gpu_kernels.join_rotated,
        lambda **on: (
            *(draw(5, 2, 8, **on) for _ in range(3)),
            *angles(5, 8, on.get("device", "cpu")),
        ),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_torch_accepts_the_operators(name: str) -> None:
    operator, make = OPERATORS[name]
    torch.library.opcheck(operator, make())


@pytest.mark.parametrize(("tokens", "size"), [(5, 48), (2, 512), (3, 700), (2, 1280)])
def test_gate_backward_interpreted(tokens: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = interpret(monkeypatch)
    h, grad = draw(tokens, 2 * size), draw(tokens, size)
    found = torch.full_like(h, torch.nan), torch.full_like(grad, torch.nan)
    kernels["gate_backward"](h, grad, *found)
    torch.testing.assert_close(found, gpu_kernels.gate_backward_plainly(h, grad))


@pytest.mark.parametrize(("heads", "size"), [(2, 8), (6, 64), (3, 10)])
def test_rotate_interpreted(heads: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = interpret(monkeypatch)
    qkv, turns = draw(4, 3, heads, size), angles(4, size)
    q, k, v = qkv.unbind(1)
    found = torch.full((2, *q.shape), torch.nan).unbind()
    kernels["rotate"]((q, k), found, turns, sign=1)
    torch.testing.assert_close(found, gpu_kernels.split_rotated_plainly(qkv, *turns))
    old, joined = (q.contiguous(), k.contiguous(), v.contiguous()), torch.full_like(qkv, torch.nan)
    kernels["rotate"](old, joined.unbind(1), turns, sign=-1)
    torch.testing.assert_close(joined, gpu_kernels.join_rotated_plainly(*old, *turns))


def interpret(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what `triton_kernels` defines, for tensors of a CPU."""
    pytest.importorskip("triton", reason="comes with torch for GPUs")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return runpy.run_module("benchmarks.triton_kernels")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_are_their_formulas(name: str, dtype: torch.dtype) -> None:
    operator, make = OPERATORS[name]
    inputs = make(dtype=dtype, device="cuda")
    found, expected = operator(*inputs), operator(*(x.cpu() for x in inputs))
    share = 1e-5 if dtype == torch.float32 else 0.01
    pairs = [(found, expected)] if isinstance(found, Tensor) else zip(found, expected, strict=True)
    for ours, theirs in pairs:
        assert_near([ours.float().cpu()], [theirs.float()], share)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", PARTS)
def test_parts_train_compiled_on_a_gpu(name: str) -> None:
    sizes = {"num_attention_heads": 1}  # FlexAttention needs heads of 16
    found, plain = (
        encode(part, "inductor", torch.bfloat16, "cuda", **sizes) for part in (PARTS[name], PLAIN)
    )
    assert_near(found, plain, 0.05)


def test_flash_attention_4_is_refused_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ImportError, match="flash_attn"), gpu_kernels.flash_attention_4():
        pass
    assert attention.current_flash_attention_impl() is None
