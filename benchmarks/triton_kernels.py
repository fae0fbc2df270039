"""Triton kernels of `benchmarks.gpu_kernels`, which has their plain formulas and imports them late.

Triton comes with torch for NVIDIA GPUs. With TRITON_INTERPRET=1 they compute on a CPU.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    triton: Any = None
    tl: Any = None
    constexpr = int
else:
    import triton
    import triton.language as tl
    from triton.language import constexpr  # by this name

_BLOCK = 512  # elements of a row of the gate, for 64 threads


@triton.jit
def _gate_backward(h, grad, grad_h, y, size, BLOCK: constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, first, second = column < size, 2 * row * size + column, (2 * row + 1) * size + column
    a = tl.load(h + first, mask=inside).to(tl.float32)
    b = tl.load(h + second, mask=inside).to(tl.float32)
    d = tl.load(grad + row * size + column, mask=inside).to(tl.float32)
    share = 0.5 + 0.5 * tl.erf(a * 0.7071067811865476)  # the normal distribution, and its density
    density = 0.3989422804014327 * tl.exp(-0.5 * a * a)
    tl.store(grad_h + first, d * b * (share + a * density), mask=inside)
    tl.store(grad_h + second, d * a * share, mask=inside)
    tl.store(y + row * size + column, a * share * b, mask=inside)


def gate_backward(h: Tensor, grad: Tensor, grad_h: Tensor, y: Tensor) -> None:
    """Write `grad_h` and `y` of `gpu_kernels.gate_backward`; all are contiguous."""
    rows, size = grad.shape
    grid = (rows, triton.cdiv(size, _BLOCK))
    _gate_backward[grid](h, grad, grad_h, y, size, BLOCK=_BLOCK, num_warps=2)


@triton.jit
def _rotate_part(x, out, cos, sin, inside, HALF: constexpr):
    real = tl.load(x, mask=inside).to(tl.float32)
    imaginary = tl.load(x + HALF, mask=inside).to(tl.float32)
    tl.store(out, real * cos - imaginary * sin, mask=inside)
    tl.store(out + HALF, imaginary * cos + real * sin, mask=inside)


@triton.jit
def _rotate(
    q, k, v, new_q, new_k, new_v, cosines, sines, stride, new_stride, pairs,
    HALF: constexpr, BLOCK: constexpr, SIGN: constexpr, HAS_V: constexpr,
):  # fmt: skip
    token, pair = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside, at = pair < pairs, pair // HALF * (2 * HALF) + pair % HALF
    angle = token * HALF + pair % HALF
    cos = tl.load(cosines + angle, mask=inside)
    sin = SIGN * tl.load(sines + angle, mask=inside)
    old, new = token * stride + at, token * new_stride + at
    _rotate_part(q + old, new_q + new, cos, sin, inside, HALF)
    _rotate_part(k + old, new_k + new, cos, sin, inside, HALF)
    if HAS_V:
        tl.store(new_v + new, tl.load(v + old, mask=inside), mask=inside)
        tl.store(new_v + new + HALF, tl.load(v + old + HALF, mask=inside), mask=inside)


def rotate(
    old: tuple[Tensor, ...], new: tuple[Tensor, ...], angles: tuple[Tensor, Tensor], sign: int
) -> None:
    """Rotate q and k by `sign` times their angles, and copy v if there is one.

    Args:
        old: q, k and possibly v, each [T, H, K] with one stride for tokens.
        new: the same, to be written.
        angles: cosines and sines, [T, 1, K / 2] in fp32.
    """
    tokens, heads, size = old[0].shape
    pairs = heads * size // 2
    block = triton.next_power_of_2(pairs)
    _rotate[(tokens,)](
        *(old[0], old[1], old[-1], new[0], new[1], new[-1], *angles),
        *(old[0].stride(0), new[0].stride(0), pairs),
        HALF=size // 2,
        BLOCK=block,
        SIGN=sign,
        HAS_V=len(old) == 3,
        num_warps=max(1, block // 256),
    )
