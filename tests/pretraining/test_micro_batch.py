"""The micro-batch of a GPU: found from two trials that leave no trace, kept by a resumed run."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.cli.main import main
from maskwright.distributed.world import World
from maskwright.errors import ConfigError, InputError
from maskwright.pretraining import micro_batch, resume
from maskwright.pretraining.build import build_trainer, resolve_model
from maskwright.pretraining.gpus import parse_cards
from maskwright.pretraining.micro_batch import (
    RowsOfStep,
    choose_micro_batch,
    estimate_micro_batch,
    fit_micro_batch,
    try_micro_batch,
)
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.run_directory import load_run_config
from maskwright.train.trainer import Trainer
from tests.distributed.worlds import run_world
from tests.workplace import SMALL, data_of

GB = 1e9
A, B = 0.5 * GB, 250_000  # the bytes of a small encoder without and for each token
BASE = RowsOfStep(1024, 512)


def simulate(fixed: float, per_token: float) -> Callable[[int], float]:
    return lambda tokens: fixed + per_token * tokens


@pytest.mark.parametrize("card", [8, 16, 24, 40, 80, 141])
def test_the_largest_equal_part_of_a_step_fits_the_card(card: int) -> None:
    room = 0.9 * card * GB
    tokens = fit_micro_batch(simulate(A, B), room, BASE)
    assert tokens % BASE.length == 0
    assert A + B * tokens <= room
    parts = math.ceil(BASE.most * BASE.length / tokens)
    assert A + B * (BASE.most * BASE.length / (parts - 1)) > room  # fewer parts do not fit


@given(
    fixed=st.integers(0, 10**11),
    per_token=st.integers(1, 10**7),
    room=st.integers(0, 2 * 10**11),
    length=st.integers(8, 8192),
    most=st.integers(1, 5000),
    kept=st.none() | st.integers(1, 10**7),
)
def test_it_is_whole_rows_that_fit_and_no_more_than_a_step(
    fixed: int, per_token: int, room: int, length: int, most: int, kept: int | None
) -> None:
    peak, rows = simulate(fixed, per_token), RowsOfStep(length, most)
    tokens = fit_micro_batch(peak, room, rows, kept)
    if tokens == 0:
        assert peak(length) > room * (1 - 1e-9)
    elif tokens != kept:
        assert tokens % length == 0
        assert tokens <= most * length
    if tokens:
        assert peak(tokens) <= room * (1 + 1e-9)


def test_a_size_is_kept_if_it_fits() -> None:
    room = 21.6 * GB
    found = fit_micro_batch(simulate(A, B), room, BASE)
    assert fit_micro_batch(simulate(A, B), room, BASE, kept=8192) == 8192
    assert fit_micro_batch(simulate(A, B), room, BASE, kept=10 * found) == found


@pytest.mark.parametrize(("limit", "tokens"), [(4096, 2048), (2048, 0)])
def test_a_trial_that_runs_out_of_memory_limits_it(limit: int, tokens: int) -> None:
    def peak(trial: int) -> float:
        return math.inf if trial >= limit else A

    assert fit_micro_batch(peak, 8 * GB, RowsOfStep(128, 1024)) == tokens


def fit_on_rank(world: World) -> list[int]:
    """The micro-batches of ranks with different cards, the last of which has no room at all."""
    card = 8 * GB if world.is_first else 80 * GB
    rooms = (card, 8 * GB if world.is_first else 0.0)
    return [fit_micro_batch(simulate(A, B), room, BASE, world=world) for room in rooms]


def test_all_ranks_take_the_least() -> None:
    expected = fit_micro_batch(simulate(A, B), 8 * GB, BASE)
    assert run_world(2, fit_on_rank) == [[expected, 0]] * 2


def test_ranks_share_the_rows_of_the_largest_step() -> None:
    config = resolve("base")
    assert RowsOfStep.of(config) == BASE
    assert RowsOfStep.of(config, 3) == RowsOfStep(1024, 171)


CHANGES: dict[str, dict[str, Any]] = {
    "mlm": {"model": {"hidden_dropout": 0.2}, "train": {"ema_decay": 0.9}},
    "causal": {"model": {"next_token_prediction": True}, "masking": {"causal_share": 0.5}},
    "candidates": {"train": {"num_candidates": 16}},
    "rtd": {"objective": {"name": "rtd", "generator_share": 1}, "train": {"num_candidates": 0}},
}


def make_trainer(workplace: Path, tmp_path: Path, **changes: Any) -> tuple[Trainer, PretrainConfig]:
    recorded = load_run_config(workplace / "runs" / "small", {})
    names = ("tokenizer", "data", "masking", "objective", "model", "optim", "train")
    sections = {name: {**vars(getattr(recorded, name)), **changes.get(name, {})} for name in names}
    sections["train"] |= {"max_steps": 3, "num_validations": 1}
    config = resolve(None, None, sections)
    return build_trainer(config, PreparedData(data_of(workplace)), tmp_path)[0], config


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes a CPU look like a GPU of so many GB, whose peak is 1 MB a token."""
    tokens: list[int] = []
    tried = micro_batch.compute_gradients

    def compute(parallel: Any, loaded: Any, *more: Any) -> Any:
        tokens.append(len(loaded.micro_batches[0].input_ids))
        return tried(parallel, loaded, *more)

    monkeypatch.setattr(micro_batch, "compute_gradients", compute)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: 1e6 * tokens[-1])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def set_card(gigabytes: float) -> None:
        monkeypatch.setattr(micro_batch, "measure_room", lambda *_: gigabytes * GB)

    return set_card


@pytest.mark.parametrize("kind", CHANGES)
def test_a_trial_leaves_no_trace(
    kind: str, workplace: Path, tmp_path: Path, on_card: Callable[[float], None]
) -> None:
    runs: list[dict[str, torch.Tensor]] = []
    for tries in (False, True):
        trainer, config = make_trainer(workplace, tmp_path / str(tries), **CHANGES[kind])
        if tries:
            before, generator = trainer.state, torch.get_rng_state()
            assert try_micro_batch(trainer, config, 128, 32) == 128e6
            assert all(parameter.grad is None for parameter in trainer.model.parameters())
            assert trainer.optimizers.state_tensors() == {}
            assert torch.equal(torch.get_rng_state(), generator)
            assert trainer.state == before
        trainer.fit()
        runs.append({n: p.detach() for n, p in trainer.model.named_parameters()})
        trainer.prefetcher.close()
    assert all(torch.equal(runs[0][name], weight) for name, weight in runs[1].items())


def test_a_trial_has_as_many_predictions_as_any_step(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_card: Callable[..., None]
) -> None:
    trainer, config = make_trainer(workplace, tmp_path, **CHANGES["causal"])
    seen: list[Any] = []
    compute = micro_batch.compute_gradients

    def watch(parallel: Any, loaded: Any, *more: Any) -> Any:
        seen.append(loaded)
        return compute(parallel, loaded, *more)

    monkeypatch.setattr(micro_batch, "compute_gradients", watch)
    try_micro_batch(trainer, config, 128, 32)
    assert all(loaded.is_causal for loaded in seen)
    assert len(seen[0].micro_batches) == 2


def test_the_size_is_planned_and_reported_and_nothing_that_does_not_fit(
    workplace: Path, tmp_path: Path, on_card: Callable[[float], None]
) -> None:
    trainer, config = make_trainer(workplace, tmp_path, train={"batch_tokens": 8192})
    lines: list[str] = []
    on_card(4.2)  # and the optimizer's state takes a little
    choose_micro_batch(trainer, config, lines.append)
    [line] = lines
    assert trainer.schedule.train.micro_batch_tokens == 4096
    assert "4,096" in line
    assert trainer.schedule.step_at(0).request.micro_batch_rows == 128
    on_card(0.01)
    with pytest.raises(ConfigError) as caught:
        choose_micro_batch(trainer, config, lines.append)
    assert caught.value.field == "train.micro_batch_tokens"


def test_optimizer_state_is_what_a_step_allocates(workplace: Path, tmp_path: Path) -> None:
    for name in ("muon", "adamw"):
        trainer, _ = make_trainer(workplace, tmp_path / name, optim={"name": name})
        estimated = trainer.optimizers.estimate_state_bytes()
        trainer.fit()
        allocated = sum(each.nbytes for each in trainer.optimizers.state_tensors().values())
        assert estimated == pytest.approx(allocated, rel=0.03)  # without squares of rows
        trainer.prefetcher.close()


def test_a_resumed_run_asks_to_keep_it(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", folder)
    path, asked = folder / "provenance.json", list[int | None]()

    def ask(*_: Any, kept_tokens: int | None, **__: Any) -> None:
        asked.append(kept_tokens)
        raise InputError("that is enough")

    monkeypatch.setattr(resume, "open_session", ask)
    provenance = json.loads(path.read_text(encoding="utf-8"))
    assert "micro_batch_tokens" not in provenance["computation"]  # of a CPU: the whole step
    later: dict[str, Any] = {"step": 1, "changes": {}, "computation": {"micro_batch_tokens": 96}}
    for entries in ([], [later], [later, {"step": 2, "changes": {}}]):
        values = {**provenance, "resumptions": entries}
        path.write_text(json.dumps(values), encoding="utf-8")
        assert main(["pretrain", "--resume", str(folder)]) == 2
    assert asked == [None, 96, 96]


def test_a_given_size_is_recorded(workplace: Path, tmp_path: Path) -> None:
    flags = [*SMALL, "--train.max_steps", "2", "--train.micro_batch_tokens", "64"]
    place = ["--runs-dir", str(tmp_path), "--name", "cut"]
    assert main(["pretrain", str(data_of(workplace)), *flags, *place]) == 0
    facts = json.loads((tmp_path / "cut" / "provenance.json").read_text(encoding="utf-8"))
    assert facts["computation"]["micro_batch_tokens"] == 64


@pytest.mark.parametrize(
    ("gigabytes", "words"), [("24", ("fit", "24.0 GB", "512 tokens")), ("0.0001", ("not one row",))]
)
def test_a_dry_run_plans_for_a_named_card(
    gigabytes: str, words: tuple[str, ...], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*SMALL, "--train.max_steps", "2", "--dry-run", "--train.device_memory", gigabytes]
    assert main(["pretrain", str(data_of(workplace)), *flags]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if each.startswith("memory")]
    assert all(word in line for word in words)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiles", ["off", "on"])
def test_a_step_of_the_size_found_fits_a_real_card(
    compiles: str, workplace: Path, tmp_path: Path
) -> None:
    flags = [*SMALL, "--model.hidden_size", "256", "--model.intermediate_size", "1024"]
    flags += ["--train.device", "cuda", "--train.device_memory", "0.6", "--train.max_steps", "2"]
    flags += ["--train.batch_tokens", str(2**18), "--train.compile", compiles]
    place = ["--runs-dir", str(tmp_path), "--name", "cut"]
    assert main(["pretrain", str(data_of(workplace)), *flags, *place]) == 0
    facts = json.loads((tmp_path / "cut" / "provenance.json").read_text(encoding="utf-8"))
    assert 2048 <= facts["computation"]["micro_batch_tokens"] < 2**18
    assert torch.cuda.max_memory_allocated() <= 0.6 * GB


def test_the_micro_batch_of_a_named_card_fits_into_its_memory() -> None:
    config = resolve("base")
    model, found = resolve_model(config), list[int]()
    for name in ("H200", "A100", "L40S", "4090"):
        fitting = estimate_micro_batch(config, [model], parse_cards(name, "device"))
        assert fitting.fits
        assert fitting.memory.total <= fitting.room
        found.append(fitting.tokens)
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] >= 1024
