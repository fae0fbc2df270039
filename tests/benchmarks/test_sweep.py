"""Points of a grid, and what a sweep keeps of its runs."""

import json
from pathlib import Path

import pytest

from benchmarks import common, sweep
from benchmarks.finetuning_sweep import rank
from benchmarks.sweep import list_points, name_point
from benchmarks.trials import Bench
from maskwright.cli.flags import config_values
from maskwright.cli.pretrain import build_parser
from maskwright.runs.config import resolve

AXES = [["optim.muon_learning_rate", "0.01", "0.02"], ["masking.rate", "0.2", "0.3", "0.4"]]


def test_every_combination_is_a_point_and_a_configuration() -> None:
    points = list_points(AXES, None)
    assert len(set(map(name_point, points))) == len(points) == 6
    flags = [f"--{field}={value}" for field, value in points[-1]]
    config = resolve("sprint", overrides=config_values(build_parser().parse(["a.txt", *flags])))
    assert (config.optim.muon_learning_rate, config.masking.rate) == (0.02, 0.4)


def test_drawn_points_are_of_the_grid_and_always_the_same() -> None:
    drawn = list_points(AXES, 3)
    assert drawn == list_points(AXES, 3)
    assert len(set(drawn)) == 3
    assert set(drawn) <= set(list_points(AXES, None))


def test_a_line_is_kept_of_each_run_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[str] = []

    def train(bench: Bench, trial) -> None:
        run = bench.runs / trial.run_name
        if not run.exists():
            trained.append(trial.run_name)
            (run / "model").mkdir(parents=True)
            scores = dict.fromkeys(("step", "tokens", "seconds", "masked_accuracy"), 1)
            loss = float(trial.options[0].partition("=")[2])
            record = {"split": "valid", "final": True, "unigram_accuracy": 0.1, "loss": loss}
            (run / "metrics.jsonl").write_text(json.dumps({**record, **scores}))

    monkeypatch.setattr(Bench, "train", train)
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    flags = ["sweep", "--runs", str(tmp_path / "runs"), "--data", str(tmp_path), "--seeds", "0"]
    for values in (["0.3", "0.2"], ["0.2", "0.1"]):
        monkeypatch.setattr("sys.argv", [*flags, "--vary", "masking.rate", *values])
        sweep.main()
    lines = (tmp_path / "runs" / "sweep.jsonl").read_text().splitlines()
    tried = [json.loads(line)["settings"]["masking.rate"] for line in lines]
    assert sorted(tried) == ["0.1", "0.2", "0.3"]
    assert len(trained) == 3
    [result] = (tmp_path / "results").iterdir()
    assert [run["loss"] for run in json.loads(result.read_text())["runs"]] == [0.1, 0.2, 0.3]
    assert capsys.readouterr().out.splitlines()[-1] == "0.3000  seed 0  masking.rate=0.3"


def test_settings_of_fine_tuning_are_ranked_by_the_mean_over_the_tasks():
    lines = [
        {"settings": settings, "task": task, "score": score}
        for settings, task, score in [("a", "cola", 0.5), ("a", "cola", 0.3), ("a", "rte", 0.6),
                                      ("b", "cola", 0.8), ("b", "rte", 0.6)]
    ]  # fmt: skip
    [first, second] = rank(lines)
    assert first == (0.7, "b", {"cola": 0.8, "rte": 0.6})
    assert second == (0.5, "a", {"cola": 0.4, "rte": 0.6})
