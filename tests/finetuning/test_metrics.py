import numpy as np
import pytest

from maskwright.finetuning.metrics import TASK_METRICS, Metric, compute_metric

TRUE = np.array([0, 0, 0, 1, 1, 1, 1, 1])
FOUND = np.array([0, 1, 0, 1, 1, 1, 0, 1])  # 2 of 3 and 4 of 5 are right


def test_measures_of_classes_by_hand() -> None:
    assert compute_metric("accuracy", TRUE, FOUND) == 6 / 8
    of_1, of_0 = 2 * 4 / (5 + 5), 2 * 2 / (3 + 3)
    assert compute_metric("f1", TRUE, FOUND) == pytest.approx(of_1)
    assert compute_metric("macro_f1", TRUE, FOUND) == pytest.approx((of_0 + of_1) / 2)
    phi = (4 * 2 - 1 * 1) / (5 * 5 * 3 * 3) ** 0.5
    assert compute_metric("matthews", TRUE, FOUND) == pytest.approx(phi)


def test_several_labels_at_once() -> None:
    true, found = np.array([[1, 0], [1, 1]]), np.array([[1, 1], [0, 1]])
    assert compute_metric("micro_f1", true, found) == pytest.approx(2 * 2 / (3 + 3))


def test_measures_of_numbers() -> None:
    true, found = np.array([1.0, 2.0, 3.0, 10.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert compute_metric("spearman", true, found) == pytest.approx(1.0)
    assert compute_metric("pearson", true, found) == pytest.approx(np.corrcoef(true, found)[0, 1])
    assert compute_metric("mean_squared_error", true, found) == 9.0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_answers_that_are_all_the_same_correlate_with_nothing(name: Metric) -> None:
    assert compute_metric(name, np.array([1.0, 2.0]), np.array([3.0, 3.0])) == 0.0


def test_every_task_has_measures_that_exist() -> None:
    for names in TASK_METRICS.values():
        for name in names:
            assert np.isfinite(compute_metric(name, TRUE, FOUND))
