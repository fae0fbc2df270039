"""Muon, whose matrices are divided among ranks, updates weights as one rank does."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.distributed.parallel import UNSHARDED, Replicated, Sharded, Sharding, build_mesh
from maskwright.distributed.world import World
from maskwright.errors import ConfigError
from maskwright.optim.muon import Muon
from tests.distributed.worlds import alone, run_world

CPU = torch.device("cpu")
# Weights [out, in], and the number of matrices stacked in each: 7 of one shape, 3 of two that are
# orthogonalized together, one transposed, and one alone: fewer than ranks.
WEIGHTS = [(96, 32, 3), (32, 32, 1), (48, 32, 1), (96, 32, 3), (32, 48, 1), (32, 48, 1), (5, 7, 1)]
CASES = [
    ("fsdp", 1),
    *((kind, size) for kind in ("ddp", "fsdp") for size in (2, 3, 4)),
    ("hsdp", 4),
]


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distribute_weights(
    world: World, kind: str, wholes: list[Tensor]
) -> tuple[list[nn.Parameter], Sharding]:
    if kind in ("alone", "ddp"):
        sharding = Replicated() if kind == "ddp" else UNSHARDED
        return [nn.Parameter(whole) for whole in wholes], sharding
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = build_mesh(world, CPU, by_node=kind == "hsdp")
    where = (mesh, [*[Replicate()] * (mesh.ndim - 1), Shard(0)])
    sharded = [distribute_tensor(whole, *where, src_data_rank=None) for whole in wholes]
    return [nn.Parameter(tensor) for tensor in sharded], Sharded(mesh)


def update(world: World, kind: str, beta2: float) -> dict[str, NDArray[np.float32]]:
    """Weights and state after 20 steps: in one a weight has no gradient, one changes nothing."""
    wholes = [random(number, rows, columns) for number, (rows, columns, _) in enumerate(WEIGHTS)]
    weights, sharding = distribute_weights(world, kind, wholes)
    optimizer = Muon(
        weights,
        [count for *_, count in WEIGHTS],
        **{"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "num_steps": 5},
        beta2=beta2,
        sharding=sharding,
    )
    for step in range(20):
        optimizer.found_inf = torch.tensor(float(step == 7))
        for number, weight in enumerate(weights):
            gradient = random(100 * step + number, *weight.shape) / (0 if step == 7 else 1)
            weight.grad = sharding.shard(gradient, weight)
        weights[3].grad = None if step == 4 else weights[3].grad
        optimizer.step()
    named = {f"weight {number}": weight.detach() for number, weight in enumerate(weights)}
    for number, weight in enumerate(weights):
        named |= {f"{name} {number}": value for name, value in optimizer.state[weight].items()}
    return {name: sharding.gather(value).numpy() for name, value in named.items()}


def update_plain_and_normalized(world: World, kind: str) -> list[dict[str, NDArray[np.float32]]]:
    return [update(world, kind, beta2) for beta2 in (0.0, 0.9)]


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_any_number_of_ranks_gives_the_bits_of_one(kind: str, size: int) -> None:
    expected = alone(update_plain_and_normalized, "alone")
    assert [len(named) for named in expected] == [2 * len(WEIGHTS), 3 * len(WEIGHTS)]
    for found in run_world(size, update_plain_and_normalized, kind):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.keys() == theirs.keys()
            for name, values in theirs.items():
                assert np.isfinite(values).all()
                assert np.array_equal(ours[name], values), name


def exchange_rows(world: World, kind: str) -> list[tuple[int, int]]:
    """Exchange the rows of drawn weights; the matrices that this rank owns, by draw."""
    draw, owned = np.random.default_rng(3), list[tuple[int, int]]()
    for _ in range(20):
        num_rows = int(draw.integers(1, 6))
        counts = draw.integers(1, 5, int(draw.integers(1, 5)))
        wholes = [random(int(count), int(count) * num_rows, 3) for count in counts]
        weights, sharding = distribute_weights(world, kind, wholes)
        exchange = sharding.exchange(weights, num_rows)
        rows = torch.cat([sharding.local(weight.detach()) for weight in weights])
        own = exchange.collect(rows)
        matrices = torch.cat(wholes).view(-1, num_rows, 3)
        assert torch.equal(own.view(-1, num_rows, 3), matrices[exchange.own])
        assert torch.equal(exchange.deliver(own), rows)
        values = torch.full_like(matrices, float(world.rank))
        values[exchange.own] = matrices[exchange.own]
        exchange.complete(values)
        assert torch.equal(values, matrices)
        owned.append((len(matrices), len(matrices[exchange.own])))
    return owned


@pytest.mark.parametrize(("kind", "size"), CASES[:-1])
def test_every_matrix_has_one_owner_and_every_row_comes_back(kind: str, size: int) -> None:
    for draws in zip(*run_world(size, exchange_rows, kind), strict=True):
        totals, counts = zip(*draws, strict=True)
        assert sum(counts) == totals[0]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("node_size", [None, 3])
def test_hybrid_sharding_needs_nodes_of_one_size(node_size: int | None) -> None:
    with pytest.raises(ConfigError) as caught:
        build_mesh(World(0, 4, 0, node_size), CPU, by_node=True)
    assert (caught.value.field, caught.value.value) == ("LOCAL_WORLD_SIZE", node_size)
