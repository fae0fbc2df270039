"""Ways to orthogonalise Muon's updates: how near they come, how long they take, what they train.

    python -m benchmarks.orthogonalisers --runs runs/orthogonal --data DATA --momentum RUN

`jordan-N` is N times one quintic, after division by the Frobenius norm; with 5, Muon as it was
published. `polar-express-5` composes five quintics, each the best one for what the one before
leaves, with the coefficients of Amsel et al. 2025, "The Polar Express", arXiv 2505.16932.
`polar-4-near` does with four, the best ones from 0.005 on, after division by the Schatten-4 norm,
which the first Gram matrix gives and which is nearer to the largest singular value. Nearness and
time are of the momentum in a checkpoint of RUN; training is at equal steps, so that only quality is
compared.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from benchmarks.common import write_result
from benchmarks.races import divide, race
from maskwright.logs import read_metrics

Polynomial = tuple[float, float, float]
_JORDAN: Polynomial = (3.4445, -4.7750, 2.0315)
_POLAR: dict[str, tuple[Polynomial, ...]] = {
    "polar-express-5": (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
        (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    ),
    "polar-4-near": (
        (8.2987, -24.4305, 18.0903),
        (3.9152, -2.9211, 0.5592),
        (3.1746, -2.3804, 0.4978),
        (2.1895, -1.5672, 0.4079),
    ),
}
_MARGIN = 1.01  # of Polar Express, against singular values that rounding has made larger than 1
BASELINE = "jordan-5"
VARIANTS = (BASELINE, "jordan-4", "jordan-7", *_POLAR)
_STEPS = 500


def list_polynomials(name: str) -> tuple[Polynomial, ...]:
    """The quintics of a variant, in their order."""
    if name not in _POLAR:
        return (_JORDAN,) * int(name.rpartition("-")[2])
    if name != "polar-express-5":
        return _POLAR[name]
    return tuple((a / _MARGIN, b / _MARGIN**3, c / _MARGIN**5) for a, b, c in _POLAR[name])


def orthogonalize(name: str, matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, m, n] with singular values moved towards 1."""
    x = matrices.to(dtype)
    if tall := x.shape[1] > x.shape[2]:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    gram = x @ x.mT
    if name == "polar-4-near":
        scale = gram.float().norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
        x, gram = x * scale.rsqrt().to(dtype), gram / scale.to(dtype)
    for number, (a, b, c) in enumerate(list_polynomials(name)):
        gram = gram if number == 0 else x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


def read_momentum(run: Path) -> list[Tensor]:
    """The momentum of all hidden matrices in the newest checkpoint, by shape: [B, m, n]."""
    newest = max((run / "checkpoints").glob("step_*"))
    by_shape: dict[tuple[int, ...], list[Tensor]] = {}
    for file in newest.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in list(tensors.keys()):
                if "momentum_buffer" in name:
                    matrix = tensors.get_tensor(name)
                    by_shape.setdefault(tuple(matrix.shape), []).append(matrix)
    return [torch.stack(matrices) for matrices in by_shape.values()]


def measure_nearness(momentum: list[Tensor], dtype: torch.dtype) -> dict[str, float]:
    """Distance from the orthogonal factor, relative to it, on average over all matrices."""
    found: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for matrices in momentum:
        left, _, right = torch.linalg.svd(matrices.float(), full_matrices=False)
        polar = left @ right
        for name, distances in found.items():
            gap = orthogonalize(name, matrices, dtype).float() - polar
            distances += (gap.norm(dim=(1, 2)) / polar.norm(dim=(1, 2))).tolist()
    return {name: round(sum(each) / len(each), 4) for name, each in found.items()}


def time_variant(name: str, momentum: list[Tensor], dtype: torch.dtype) -> float:
    """Milliseconds for all matrices of a model."""
    began = time.perf_counter()
    for _ in range(10):
        for matrices in momentum:
            orthogonalize(name, matrices, dtype)
    return 100 * (time.perf_counter() - began)


def train(variant: str, run: Path, data: Path, seed: int) -> dict[str, Any]:
    """The last validation after so many steps of `sprint` with a variant in the place of ours."""
    if not (run / "model").is_dir():
        code = (
            "import sys; from functools import partial; import maskwright.optim.muon as muon\n"
            "from benchmarks.orthogonalisers import orthogonalize\n"
            f"muon.orthogonalize = lambda m, steps, dtype: orthogonalize({variant!r}, m, dtype)\n"
            "from maskwright.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        flags = ["--recipe", "sprint", "--seed", str(seed), "--name", run.name]
        flags += ["--runs-dir", str(run.parent), "--train.max_steps", str(_STEPS)]
        flags += ["--train.max_minutes", "none", "--train.report", "false", "--auto-resume"]
        command = [sys.executable, "-c", code, "pretrain", str(data), *flags]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    last = [r for r in read_metrics(run / "metrics.jsonl") if r.get("final")][-1]
    return {key: last[key] for key in ("step", "tokens", "loss", "masked_accuracy")}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="keeps the runs")
    parser.add_argument("--data", type=Path, required=True, help="English Wikipedia, prepared")
    parser.add_argument("--momentum", type=Path, required=True, help="a run with checkpoints")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    momentum = read_momentum(arguments.momentum)
    found: dict[str, Any] = {"shapes": [list(each.shape) for each in momentum]}
    for dtype in (torch.float32, torch.bfloat16):
        contenders: dict[str, Callable[[], float]] = {
            name: partial(time_variant, name, momentum, dtype) for name in VARIANTS
        }
        times = race(contenders, 7, "ms")
        ratios = {name: divide(times[name], times[BASELINE]) for name in VARIANTS}
        nearness = measure_nearness(momentum, dtype)
        found[str(dtype)] = {"milliseconds": times, "time_ratio": ratios, "distance": nearness}
    found["trained"] = [
        {"variant": name, "seed": seed, **train(name, run, arguments.data, seed)}
        for seed in arguments.seeds
        for name in VARIANTS
        for run in [arguments.runs / f"{name}-seed{seed}"]
    ]
    write_result("orthogonalisers", found)


if __name__ == "__main__":
    main()
