import shutil

import pytest
import torch

from maskwright.errors import ConfigError
from maskwright.train.config import Precision, TrainConfig
from maskwright.train.device import (
    autocast,
    choose_device,
    computes_in_bf16,
    describe_computation,
    should_compile,
)

CPU = torch.device("cpu")


def test_a_device_is_chosen_by_name() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", ""])
def test_a_device_that_is_not_here_is_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"train.device = .* is not a device here\. Try cpu"):
        choose_device(name)


def test_a_gpu_that_is_full_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be")

    monkeypatch.setattr(torch, "empty", fail)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(ConfigError, match=r"cannot be used: CUDA error: out of memory\. Try cpu"):
        choose_device("cuda")


def product_type(precision: Precision) -> torch.dtype:
    with autocast(precision, CPU):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_precision_is_what_was_asked_for() -> None:
    assert product_type("fp32") is torch.float32
    assert product_type("bf16") is torch.bfloat16
    fast = computes_in_bf16(CPU)
    assert product_type("auto") is (torch.bfloat16 if fast else torch.float32)


def test_what_computes_is_described_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(device: torch.device) -> str:
        return f"GPU {device.index}"

    monkeypatch.setattr(torch.cuda, "get_device_name", name)
    assert describe_computation("fp32", CPU) == {"device": "cpu", "products": "float32"}
    found = describe_computation("bf16", torch.device("cuda", 1))
    assert found == {"device": "GPU 1", "products": "bfloat16"}


@pytest.mark.parametrize(
    ("config", "compiles"),
    [
        (TrainConfig(compile="on", max_steps=1), True),
        (TrainConfig(compile="off", max_minutes=600), False),
        (TrainConfig(max_minutes=90), True),
        (TrainConfig(max_minutes=10), False),
        (TrainConfig(max_steps=10_000, batch_tokens=2048), True),
        (TrainConfig(max_steps=1000, batch_tokens=2048), False),
        (TrainConfig(max_steps=1000, batch_tokens_schedule=("0:1024", "0.5:65536")), True),
        (TrainConfig(max_tokens=10**8), True),
        (TrainConfig(max_minutes=90, max_tokens=1000), False),
        (TrainConfig(max_minutes=20, precision="fp32"), False),
        (TrainConfig(max_minutes=20, precision="bf16"), True),
    ],
)
def test_long_runs_are_compiled(
    config: TrainConfig, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/" + name)
    answer, reason = should_compile(config, CPU)
    assert answer is compiles
    assert reason


def test_nothing_is_compiled_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for device, name in ((CPU, "g++"), (torch.device("cuda"), "gcc")):
        compiles, reason = should_compile(TrainConfig(max_minutes=90), device)
        assert (compiles, name in reason) == (False, True)
