import pytest
import torch
from torch import Tensor, nn

from maskwright.optim.muon import Muon, iterate, iterate_on_gram, orthogonalize, uses_gram

SETTINGS = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "num_steps": 5}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 48, 16), (2, 16, 48)])
def test_singular_values_come_near_one(shape: tuple[int, ...]) -> None:
    updates = orthogonalize(random(*shape), 5, torch.float32)
    values = torch.linalg.svdvals(updates)
    assert updates.shape == shape
    assert float(values.max()) < 1.25
    # A square random matrix has singular values near 0, which five steps cannot all lift.
    assert float(values.median()) > 0.65
    assert float(values.min()) > (0.65 if shape[1] != shape[2] else 0.0)


@pytest.mark.parametrize("decades", [0, 2, 7])
@pytest.mark.parametrize("num_steps", [0, 1, 5])
def test_the_gram_matrix_gives_the_same_iterations(decades: int, num_steps: int) -> None:
    u, v = (torch.linalg.qr(random(2, size, 32).double()).Q for size in (32, 96))
    x = u @ torch.diag(torch.logspace(-0.1, -decades - 0.1, 32)).double() @ v.mT
    expected = iterate(x, num_steps)
    torch.testing.assert_close(iterate_on_gram(x, num_steps), expected, atol=1e-9, rtol=0)
    found = iterate_on_gram(x.float(), num_steps).double()
    assert (found - expected).norm() < 1e-3 * expected.norm()


def test_the_gram_matrix_is_used_where_it_saves_products_and_loses_nothing() -> None:
    assert uses_gram(256, 704, 5, torch.float32)
    assert not uses_gram(256, 256, 5, torch.float32)
    assert not uses_gram(256, 704, 5, torch.bfloat16)
    assert not uses_gram(256, 704, 9, torch.float32)
    tall = random(2, 48, 16)
    expected = iterate(tall.mT / tall.norm(dim=(1, 2), keepdim=True), 5).mT
    torch.testing.assert_close(orthogonalize(tall, 5, torch.float32), expected, atol=1e-4, rtol=0)


def step_slowly(weight: Tensor, gradients: list[Tensor], settings: dict[str, float]) -> Tensor:
    """The readable twin: one matrix, one line of the paper after the other."""
    momentum, squares = torch.zeros_like(weight), torch.zeros(len(weight))
    for gradient in gradients:
        momentum = settings["momentum"] * momentum + (1 - settings["momentum"]) * gradient
        x = (1 - settings["momentum"]) * gradient + settings["momentum"] * momentum
        x = x / x.norm()
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        if beta2 := settings.get("beta2"):
            squares = beta2 * squares + (1 - beta2) * x.square().mean(1)
            even = x / squares.sqrt()[:, None]
            x = even * x.norm() / even.norm()
        scale = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
        weight = weight * (1 - settings["lr"] * settings["weight_decay"])
        weight = weight - settings["lr"] * scale * x
    return weight


@pytest.mark.parametrize("beta2", [0.0, 0.9])
@pytest.mark.parametrize("shape", [(12, 8), (8, 12), (8, 8)])
def test_steps_equal_those_of_the_slow_twin(shape: tuple[int, int], beta2: float) -> None:
    weight = nn.Parameter(random(*shape))
    expected = weight.detach().clone()
    gradients = [random(*shape, seed=step) for step in range(1, 4)]
    optimizer = Muon([weight], [1], **SETTINGS, beta2=beta2)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    slowly = step_slowly(expected, gradients, {**SETTINGS, "beta2": beta2})
    assert torch.allclose(weight, slowly, atol=1e-5)


def test_a_stacked_weight_is_the_matrices_it_holds() -> None:
    stacked = nn.Parameter(random(3 * 8, 8))
    parts = [nn.Parameter(part.clone()) for part in stacked.detach().chunk(3)]
    together = Muon([stacked], [3], **SETTINGS, beta2=0.9)
    apart = Muon(parts, [1, 1, 1], **SETTINGS, beta2=0.9)
    for step in range(3):
        stacked.grad = random(3 * 8, 8, seed=step)
        for part, gradient in zip(parts, stacked.grad.chunk(3), strict=True):
            part.grad = gradient.clone()
        together.step()
        apart.step()
    assert torch.allclose(stacked, torch.cat(list(parts)), atol=1e-6)


@pytest.mark.parametrize("beta2", [0.0, 0.95])
def test_twenty_steps_of_a_stack_are_those_of_its_weights_alone(beta2: float) -> None:
    """To 1e-6 of a weight: products and norms of larger batches may round otherwise."""
    shapes = [(48, 16), (16, 16), (80, 16), (16, 40)] * 3
    counts = [3, 1, 2, 1] * 3
    weights = [nn.Parameter(random(*shape, seed=i)) for i, shape in enumerate(shapes)]
    alone = [nn.Parameter(weight.detach().clone()) for weight in weights]
    settings = {**SETTINGS, "beta2": beta2}
    together = Muon(weights, counts, **settings)
    each = [Muon([weight], [n], **settings) for weight, n in zip(alone, counts, strict=True)]
    for step in range(20):
        for i, pair in enumerate(zip(weights, alone, strict=True)):
            for weight in pair:
                weight.grad = random(*weight.shape, seed=100 * step + i)
        for optimizer in (together, *each):
            optimizer.step()
    for found, wanted in zip(weights, alone, strict=True):
        assert (found - wanted).norm() <= 1e-6 * wanted.norm()


def test_a_weight_without_gradient_stays_as_it_is() -> None:
    weight = nn.Parameter(random(4, 4))
    before = weight.detach().clone()
    Muon([weight], [1], **SETTINGS).step()
    assert torch.equal(weight, before)


def test_a_skipped_step_leaves_the_state_and_a_matrix_without_gradient_stays_finite() -> None:
    weight, still = nn.Parameter(random(4, 6)), nn.Parameter(random(4, 6, seed=1))
    optimizer = Muon([weight, still], [1, 1], **{**SETTINGS, "weight_decay": 0.0}, beta2=0.9)
    before = still.detach().clone()
    weight.grad, still.grad = random(4, 6, seed=2), torch.zeros(4, 6)
    optimizer.step()
    assert torch.equal(still, before)
    kept = {name: value.clone() for name, value in optimizer.state[weight].items()}
    place = weight.detach().clone()
    weight.grad.fill_(float("nan"))
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(weight, place)
    assert all(torch.equal(optimizer.state[weight][name], value) for name, value in kept.items())
