"""`model.sizes`: the size of the model follows from the budget and the speed of the machine."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.cli.main import main
from maskwright.distributed.world import ALONE
from maskwright.errors import ConfigError
from maskwright.model.config import parse_sizes
from maskwright.pretraining import budget
from maskwright.pretraining.budget import (
    COUNTED_EPOCHS,
    Pay,
    choose_size,
    count_pay,
    fill_step,
    pick_size,
)
from maskwright.pretraining.build import objective_of, resolve_model
from maskwright.pretraining.gpus import parse_cards
from maskwright.pretraining.request import Request, read_facts
from maskwright.pretraining.sizes import (
    Size,
    adopt_size,
    find_recipe,
    keep_size,
    may_fill_step,
    set_batch_tokens,
)
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.runs.settled import Settled
from tests.workplace import SMALL, data_of

SIZES = {"model": {"sizes": ["0:64x1", "1:128x2", "3:192x2"]}}


def count_flops(config: PretrainConfig) -> float:
    length = config.train.seq_length_at(0.5, config.data.max_seq_length)
    share = config.masking.predicted_share_at(0.5)
    return objective_of(config).count_flops_per_token(resolve_model(config), length, share)


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> float:
    """Every size computes a teraFLOP a second."""

    def measure(config: PretrainConfig, *_: object, **__: object) -> float:
        return config.train.mean_batch_tokens * count_flops(config) / 1e12

    monkeypatch.setattr(budget, "measure_step_seconds", measure)
    return 1e12


@pytest.mark.parametrize(
    ("minutes", "size"), [(10, (64, 1)), (20, (128, 2)), (49, (128, 2)), (51, (192, 2))]
)
def test_minutes_choose_the_size(minutes: float, size: tuple[int, int], speed: float):
    settled = Settled.read("tiny", None, {**SIZES, "train": {"max_minutes": minutes}})
    settled = choose_size(settled, None, None)
    chosen, reason = settled.config, settled.reasons["size"]
    assert (chosen.model.hidden_size, chosen.model.num_hidden_layers) == size
    assert (chosen.model.intermediate_size, resolve_model(chosen).head_size) == (3 * size[0], 64)
    assert f"width {size[0]}, layers {size[1]}: " in reason
    following = {64: 1e15, 128: 3e15}.get(size[0])
    if following is not None:  # a teraFLOP a second, whatever the budget
        assert f"about {following / speed / 60:.0f} minutes on this machine would buy" in reason


def test_tokens_choose_the_size_whatever_the_speed(speed: float):
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 384}
    middle = resolve("tiny", None, {"model": shape})
    enough = round(1.01e15 / count_flops(middle))
    for tokens, width in ((enough // 2, 64), (enough, 128)):
        settled = Settled.read("tiny", None, {**SIZES, "train": {"max_tokens": tokens}})
        assert choose_size(settled, None, None).config.model.hidden_size == width


def test_epochs_of_unknown_text_name_no_number(speed: float):
    epochs = {"max_minutes": None, "max_epochs": 3}
    settled = Settled.read("tiny", None, {**SIZES, "train": epochs})
    chosen = choose_size(settled, None, None)
    reason = chosen.reasons["size"]
    assert chosen.config.model.hidden_size == 192
    assert "inf" not in reason
    assert "petaFLOP" not in reason


def test_without_sizes_nothing_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(budget, "measure_step_seconds")
    settled = Settled.read("tiny")
    assert choose_size(settled, None, None) == settled


def test_a_size_that_is_given_replaces_the_choice():
    assert resolve("auto").model.sizes
    for name, value in (("hidden_size", 256), ("num_hidden_layers", 4), ("intermediate_size", 64)):
        assert resolve("auto", None, {"model": {name: value}}).model.sizes == ()


@pytest.mark.parametrize(
    "sizes", [["1:64x2"], ["0:64x2", "0:128x2"], ["0:100x2"], ["64x2"], ["0:128x2", "-1:192x2"]]
)
def test_sizes_that_cannot_be_are_refused(sizes: list[str]):
    with pytest.raises(ConfigError) as caught:
        resolve("auto", None, {"model": {"sizes": sizes}})
    assert caught.value.field == "model.sizes"


def test_a_wide_run_keeps_its_size_and_tokens_a_step() -> None:
    auto = Settled.read("auto")
    begun = set_batch_tokens(adopt_size(auto, Size(0.0, 512, 12)), 32_768)
    assert keep_size(auto, begun.config).config == begun.config


def test_a_run_keeps_the_size_with_which_it_began(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], speed: float
):
    data = data_of(workplace)
    pairs = zip(SMALL[::2], SMALL[1::2], strict=True)
    small = [flag for pair in pairs if "model." not in pair[0] for flag in pair]
    where = ["pretrain", str(data), "--runs-dir", str(tmp_path), "--name", "run", "--auto-resume"]
    command = [*where, *small, "--model.sizes", "0:64x1,1000:128x2"]
    assert main([*command, "--train.max_steps", "10"]) == 0
    said = capsys.readouterr().out
    assert said.index("choosing the size") < said.index("size: width 64, layers 1")
    assert said.index("checking the prepared data") < said.index("choosing the size")
    assert main([*command, "--train.max_steps", "20"]) == 0
    assert "at step 10" in capsys.readouterr().out
    other = ["--train.max_steps", "30", "--model.hidden_dropout", "0.2"]
    assert main([*command, *other]) == 2
    assert "model.hidden_dropout" in capsys.readouterr().err
    assert main(["pretrain", str(data), *small, "--model.sizes", "0:64x1", "--dry-run"]) == 0
    assert "width 64, layers 1" in capsys.readouterr().out


@pytest.fixture
def large_text(tmp_path: Path) -> str:
    """A file of 100 MB that takes no room on the disk."""
    path = tmp_path / "text.txt"
    with path.open("wb") as file:
        file.write(b"the larvae are black and feed on snails\n" * 50_000)  # a dry run reads it
        file.truncate(100_000_000)
    return str(path)


@pytest.mark.parametrize(
    ("device", "minutes", "given", "vocab_size"),
    [
        ("H200", 10, None, 16384),
        ("H200", 0.01, None, 8192),  # pays for a narrow model
        ("H200", 10, 9984, 9984),
        ("H200", 10, 8192, 8192),  # that of `auto`, and given
        (None, 10, None, 8192),  # the speed of this CPU is not known before it is measured
    ],
)
def test_a_wide_model_has_a_larger_vocabulary(
    device: str | None, minutes: float, given: int | None, vocab_size: int, large_text: str
):
    tokenizer = {} if given is None else {"vocab_size": given}
    sections = {"train": {"max_minutes": minutes, "device": "cpu"}, "tokenizer": tokenizer}
    settled = Settled.read("auto", None, {"text": [large_text], **sections})
    cards = parse_cards(device, "device") if device else None
    facts = read_facts(settled.config)
    asked = Request(Path("run"), Path("data"), settled, facts).join(ALONE, cards)
    chosen = asked.config
    assert chosen.tokenizer.vocab_size == vocab_size
    # The same command continues the run, wherever it is given again.
    assert keep_size(settled, chosen).config.tokenizer.vocab_size == vocab_size


def test_a_dry_run_for_a_gpu_has_the_vocabulary_of_the_run(
    large_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["pretrain", large_text, "--runs-dir", str(tmp_path), "--dry-run", "--for-device"]
    assert main([*command, "H200"]) == 0
    shown = capsys.readouterr().out
    width = int(shown.split("width ")[1].split(",")[0])
    assert f"embeddings {width * 16384 + width:,}" in shown  # and their norm


THREE_SIZES = [Size(0.0, 64, 1), Size(1.0, 128, 2), Size(3.0, 192, 2)]
LADDER = [Size(*size) for size in parse_sizes(resolve("auto").model.sizes)]


def test_the_reason_says_whether_budget_or_text_decided() -> None:
    _, by_budget = pick_size(THREE_SIZES, lambda _: Pay(0.5, 0.5, 60.0), "here")
    _, by_text = pick_size(THREE_SIZES, lambda _: Pay(0.4, 50.0, 60.0), "here")
    assert "epochs" not in by_budget
    assert f"{COUNTED_EPOCHS} epochs" in by_text
    assert "2.5 times as much text" in by_text


@given(st.floats(1, 1e12), st.floats(1, 1e12), st.floats(1e6, 1e10))
def test_passes_over_a_text_count_up_to_a_number(tokens: float, text: float, flops: float) -> None:
    pay = count_pay(tokens, text, flops, 1.0)
    assert pay.counted <= pay.whole
    assert pay.counted <= COUNTED_EPOCHS * text * flops / 1e15
    assert (pay.counted == pay.whole) == (tokens <= COUNTED_EPOCHS * text)
    assert count_pay(tokens, None, flops, 1.0).counted == pay.whole


@pytest.mark.parametrize("size", LADDER, ids=str)
def test_a_size_brings_its_values(size: Size) -> None:
    auto, wide = resolve("auto"), resolve("wide")
    config = adopt_size(Settled.read("auto"), size).config
    assert (config.model.hidden_size, config.model.num_hidden_layers) == (size.width, size.layers)
    if find_recipe(size.width) == "auto":
        assert (config.optim, config.train, config.data) == (auto.optim, auto.train, auto.data)
        return
    factor = 384 / size.width
    assert config.optim.learning_rate == pytest.approx(factor * wide.optim.learning_rate)
    assert config.optim.muon_learning_rate == pytest.approx(factor * wide.optim.muon_learning_rate)
    assert config.masking == wide.masking
    assert config.train.seq_length_schedule == wide.train.seq_length_schedule
    assert config.train.num_candidates == 0
    assert config.data.max_seq_length == wide.data.max_seq_length


def test_values_of_the_user_stay() -> None:
    given_values = {
        "optim": {"learning_rate": 0.001, "weight_decay": 0, "muon_weight_decay": "0"},
        "masking": {"rate": 0.2},
        "train": {"max_tokens": 10**9, "batch_tokens": 12_288},
    }
    settled = adopt_size(Settled.read("auto", None, given_values), Size(0.0, 512, 12))
    config = settled.config
    assert config.optim.learning_rate == 0.001
    assert (config.optim.weight_decay, config.optim.muon_weight_decay) == (0.0, 0.0)
    assert config.masking.rate == 0.2
    assert (config.train.max_tokens, config.train.max_minutes) == (10**9, None)
    assert config.train.batch_tokens == 12_288
    assert not may_fill_step(settled)


@given(st.floats(1e13, 1e16), st.floats(1e8, 1e10), st.floats(0, 1e13), st.floats(1e7, 1e12))
def test_a_step_fills_the_card_unless_it_would_be_one_of_few(
    peak: float, flops: float, update: float, tokens: float
) -> None:
    step = fill_step(peak, flops, update, tokens)
    assert step >= 8192
    assert math.log2(step).is_integer()
    assert step == 8192 or tokens / step >= 2000
    is_busy = step * flops >= 0.003 * peak
    assert is_busy or 2 * step > tokens / 2000


def test_the_ladder_of_an_h200_for_three_minutes() -> None:
    """As measured: 512 x 12, steps of 32,768 tokens (benchmarks gpu-day, piece auto)."""
    config = adopt_size(Settled.read("auto"), Size(13.0, 512, 12)).config
    assert fill_step(989e12, 261e6, 0.63e12, 150e6) == 32_768
    assert config.optim.learning_rate == pytest.approx(0.00225)
