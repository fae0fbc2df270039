"""The fit of the loss to size and tokens, and where the next size pays."""

import pytest

from benchmarks.common import find_result
from benchmarks.size_law import LAW, Run, extrapolate, find_threshold, fit, predict
from maskwright.model.config import parse_sizes
from maskwright.runs.config import resolve

TRUE = (1.8, 1.2, 0.4, 2.5, 0.5)


def simulate(parameters: float, tokens: float, speed: float) -> Run:
    run: Run = {"parameters": parameters, "tokens": tokens, "cpu_seconds": tokens / speed}
    return run | {"loss": predict(TRUE, run, tokens), "flops_per_token": 2e7}


def test_the_law_of_exact_losses_is_found():
    runs = [simulate(n, d, 1e4) for n in (1e6, 3e6, 9e6) for d in (1e6, 3e6, 9e6, 30e6)]
    law = fit(runs)
    for parameters, tokens in ((2e6, 5e6), (9e6, 100e6)):
        unseen = simulate(parameters, tokens, 1e4)
        assert predict(law, unseen, tokens) == pytest.approx(unseen["loss"], abs=0.02)


def test_both_sizes_have_the_same_loss_at_the_threshold():
    small, large = simulate(1e6, 3e6, 3e4), simulate(4e6, 3e6, 1e4)
    found = find_threshold(TRUE, (small, large))
    assert found is not None
    seconds = found * 1e15 / large["flops_per_token"] / 1e4
    assert predict(TRUE, small, seconds * 3e4) == pytest.approx(
        predict(TRUE, large, seconds * 1e4), abs=1e-6
    )
    assert predict(TRUE, small, seconds * 6e4) > predict(TRUE, large, seconds * 2e4)


def test_a_larger_size_of_equal_speed_always_pays():
    assert find_threshold(TRUE, (simulate(1e6, 3e6, 1e4), simulate(4e6, 3e6, 1e4))) is None


def test_the_recipe_has_the_sizes_of_the_law() -> None:
    result = find_result("sizes")
    assert result is not None
    fitted = {
        size: float(f"{least:.2g}") for size, least in result["pays_from_petaflop_on"].items()
    }
    stated = {f"{width}x{layers}": at for at, width, layers in parse_sizes(resolve().model.sizes)}
    law = [result["law"][name] for name in LAW]
    extrapolated = {size: float(f"{least:.2g}") for size, least in extrapolate(law).items()}
    assert stated == {"128x2": 0, **fitted, **extrapolated}
