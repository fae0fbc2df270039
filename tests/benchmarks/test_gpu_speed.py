"""The GPU's program, on a CPU at toy size."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.gpu_speed import TICK, Setting, compare, find_peak
from maskwright.pretraining.prepared_data import PreparedData


def test_both_train_and_are_compared(workplace: Path):
    [folder] = (workplace / "data").iterdir()
    setting = Setting("small", 32, 256, TICK, TICK, "cpu")
    found = compare(setting, PreparedData(folder), rounds=1)
    [ours], [theirs] = found["tokens_per_second"].values()
    assert found["ratio"]["median"] == pytest.approx(ours / theirs, abs=1e-3)
    assert found["flops_per_token"] > 0
    assert found["model_flops_utilisation"] is None  # nobody knows the peak of a CPU


def test_the_peak_is_that_of_the_card(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    assert find_peak("cuda") == ("NVIDIA H100 80GB HBM3", 989e12)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA Nothing")
    assert find_peak("cuda") == ("NVIDIA Nothing", None)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="there is no GPU here; --toy"):
        main(["gpu-speed"])
