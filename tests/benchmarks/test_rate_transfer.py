"""The grid of learning rates and the best rate of each width."""

from benchmarks.rate_transfer import FACTORS, RATES, Run, find_best, list_rates
from maskwright.runs.config import resolve

OPTIM = resolve("auto").optim
MUON, ADAMW = OPTIM.muon_learning_rate, OPTIM.learning_rate


def make_run(width: int, muon: float, adamw: float, loss: float) -> Run:
    return dict(zip(("width", *RATES, "loss"), (width, muon, adamw, loss), strict=True))


def test_one_rate_changes_at_a_time() -> None:
    rates = [tuple(each.values()) for each in list_rates(FACTORS)]
    assert len(set(rates)) == len(rates) == 2 * len(FACTORS) - 1
    assert all(muon == MUON or adamw == ADAMW for muon, adamw in rates)


def test_the_best_rate_has_the_lowest_mean_loss_at_the_other_rate_of_the_recipe() -> None:
    runs = [
        make_run(128, MUON, ADAMW, 4.0),
        make_run(128, MUON / 2, ADAMW, 3.0),
        make_run(128, MUON / 2, ADAMW, 5.2),  # another seed: the mean is 4.1
        make_run(128, MUON / 2, ADAMW / 2, 2.0),  # both rates differ
        make_run(128, MUON, ADAMW * 2, 3.9),
        make_run(256, MUON, ADAMW, 3.8),
    ]
    best = find_best(runs)
    assert best["muon_learning_rate"] == {"128": MUON, "256": MUON}
    assert best["learning_rate"] == {"128": ADAMW * 2, "256": ADAMW}
