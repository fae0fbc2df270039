"""The parts of a step are those of the training loop, and each is counted and timed."""

from pathlib import Path

import pytest
import torch

from benchmarks.host_time import HostClock, build, count, measure
from maskwright.pretraining.prepared_data import PreparedData
from tests.operators import PARTS, OperatorCounter, do_step
from tests.train.helpers import make_trainer
from tests.workplace import data_of


def test_the_parts_are_a_step_of_the_loop() -> None:
    train = {"max_steps": 3, "ema_decay": 0.9}
    fitted, stepped = make_trainer(train=train), make_trainer(train=train)
    fitted.fit()
    with OperatorCounter() as counter:
        for _ in range(3):
            do_step(stepped, counter.enter)
    assert stepped.state.position == fitted.state.position
    assert stepped.state.tokens == fitted.state.tokens
    pairs = zip(stepped.model.parameters(), fitted.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert stepped.average is not None
    assert fitted.average is not None
    for name, average in stepped.average.averages.items():
        assert torch.equal(average, fitted.average.averages[name])
    assert set(counter.counts) <= {"", *PARTS}
    assert min(counter.counts[part] for part in PARTS) > 0


def test_operators_of_blocks_are_those_of_their_number() -> None:
    counts = []
    for num_layers in (2, 3, 4):
        model = {"num_hidden_layers": num_layers, "global_attn_every_n_layers": 1}
        counts.append(count(make_trainer(model=model)))
    assert [c["average"] for c in counts] == [0, 0, 0]  # no average is kept
    assert len({c["figures"] for c in counts}) == 1
    for part in ("forward", "backward"):
        first, second, third = (c[part] for c in counts)
        assert third - second == second - first > 0


def test_a_part_that_begins_again_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr("benchmarks.host_time.time.perf_counter", lambda: float(next(times)))
    clock = HostClock(torch.device("cpu"))
    for part in ("forward", "backward", "forward", ""):
        clock.enter(part)
    assert clock.seconds["forward"] == 2 * clock.seconds["backward"] == 2


def test_a_step_is_measured(workplace: Path, tmp_path: Path) -> None:
    data = PreparedData(data_of(workplace))
    trainer = build(data, tmp_path, device="cpu", compile="off", precision="fp32")
    assert all(milliseconds > 0 for milliseconds in measure(trainer, steps=1).values())
    assert trainer.model.config.num_hidden_layers == 12
    assert trainer.state.step > 1
