"""The pieces of a day with a GPU, on a CPU at toy size."""

from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from benchmarks import gpu_day
from benchmarks.__main__ import main
from benchmarks.common import MASKWRIGHT
from benchmarks.gpu_day import PIECES, TRIALS, Day
from maskwright.cli.main import main as maskwright
from maskwright.runs.run_directory import load_recorded_config
from tests.distributed.test_torchrun import TORCHRUN
from tests.forked import Forked


@pytest.fixture
def day(workplace: Path, tmp_path: Path) -> Day:
    [data] = (workplace / "data").iterdir()
    return Day(data, tmp_path / "blimp", tmp_path / "runs", toy=True, sentences=data)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fork processes, or stay in this one: importing torch takes longer than commands do."""
    log = tmp_path / "log"
    start = partial(Forked, log=log)

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        if command[: len(MASKWRIGHT)] == [*MASKWRIGHT]:
            assert maskwright(command[len(MASKWRIGHT) :]) == 0
            return CompletedProcess(command, 0)
        with start(command) as process:
            assert process.wait() == 0, log.read_text("utf-8")
        return CompletedProcess(command, 0, log.read_text("utf-8"))

    found = SimpleNamespace(Popen=start, run=run, PIPE=None)
    monkeypatch.setattr(gpu_day, "subprocess", found)
    monkeypatch.setattr(gpu_day, "_MINUTES", ("3", "0.01"))
    monkeypatch.setattr(gpu_day, "_TORCHRUN", (*TORCHRUN, "--standalone"))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """One paradigm of twenty minimal pairs."""
    folder = tmp_path / "blimp"
    folder.mkdir()
    line = '{{"sentence_good": "the {0} sat", "sentence_bad": "the {0} cat", "UID": "toy"}}\n'
    (folder / "toy.jsonl").write_text("".join(map(line.format, range(20))))
    return folder


@pytest.mark.usefixtures("forked")
def test_a_run_that_is_stopped_and_resumed_is_compared(day: Day):
    found = day.resuming()
    assert found["same_bits"] is found["repeated_same_bits"] is True
    assert len(set(found["losses"])) == 1


def test_one_piece_fails_and_the_next_begins(
    day: Day, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    asked = ["--data", "missing", "--blimp", "missing", "--runs", str(day.runs), "--toy"]
    monkeypatch.setattr("sys.argv", ["benchmarks", "gpu-day", *asked])
    monkeypatch.setattr("benchmarks.gpu_day.PIECES", [Day.auto, Day.minimal_pairs])
    monkeypatch.setattr("sys.executable", "false")  # a program that fails at once
    with pytest.raises(SystemExit) as caught:
        main(["gpu-day", *asked])
    assert str(caught.value).count("returned non-zero") == 2
    assert [line for line in capfd.readouterr().out.splitlines() if line.startswith("==")] == [
        "== auto",
        "== minimal_pairs",
    ]


@pytest.mark.usefixtures("forked")
def test_every_other_piece_runs(day: Day, pairs: Path):
    """`resuming`, `sharding` and trials are apart; `speed` and `variants` have their own tests."""
    apart = {"resuming", "sharding", "variants", "speed", *TRIALS}
    found = {p.__name__: p(day) for p in PIECES if p.__name__ not in apart}
    made = {path.name for path in day.runs.iterdir()}
    assert {"auto", "384x12", "auto-blimp.json", "sentences-blimp.json", "tuned"} <= made
    assert found["sizes"]["sizes"].keys() == {"384x12", "768x12"}
    for piece in ("minimal_pairs", "sentences"):
        [suite] = found[piece]["suites"]
        assert suite["suite"] == "blimp"
    assert len(set(found["rates"]["losses"].values())) == 3
    rows = load_recorded_config(day.runs / "rate-0.012")
    assert (rows.optim.learning_rate, rows.train.seq_length_schedule) == (0.012, ("0:128",))
    assert all(run["step"] == 5 for run in found["micro_batches"].values())
    assert found["continuing"]["loss"] < found["continuing"]["before"]
    assert found["finetuning"]["results"]["scores"]
    assert found["vectors"]["least_cosine_with_cpu"] == pytest.approx(1.0)
    assert found["vectors"]["least_cosine_with_served"] == pytest.approx(1.0)


@pytest.mark.usefixtures("forked")
def test_sharded_runs_are_stopped_and_finished_by_one_process(day: Day):
    found = day.sharding()
    assert found.keys() == {"fsdp", "hsdp"}
    for runs in found.values():
        whole, finished = runs.values()
        assert finished["loss"] == pytest.approx(whole["loss"], rel=1e-3)
        assert finished["step"] == whole["step"] == 40


def test_sentences_need_their_data(day: Day):
    day.of_sentences = None
    with pytest.raises(SystemExit, match="--sentences"):
        day.sentences()


@pytest.mark.usefixtures("forked")
def test_trials_train_the_recipe_with_their_flags_and_are_scored_alike(day: Day):
    pieces = {piece.__name__: piece for piece in PIECES}
    found = {name: pieces[name](day) for name in TRIALS}
    configs = {name: load_recorded_config(day.runs / name) for name in TRIALS}
    usual = configs["trial_recipe"]
    assert {(c.masking.rate, c.masking.final_rate) for c in configs.values()} == {
        (usual.masking.rate, usual.masking.final_rate),
        (0.2, None),
    }
    decays = [config.optim.muon_weight_decay for config in configs.values()]
    assert decays == [usual.optim.muon_weight_decay, usual.optim.muon_weight_decay, 0.1, 1e-5]
    assert len({each["num_predictions"] for each in found.values()}) == 1
    assert all(each["device"] == "cpu" for each in found.values())


def test_the_tests_come_first_and_every_piece_has_a_name():
    names = [piece.__name__ for piece in PIECES]
    assert names[0] == "tests"
    assert len(set(names)) == len(names)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="there is no GPU here; --toy"):
        main(["gpu-day", "--data", "x", "--blimp", "x", "--runs", "x"])
