"""An experiment compares arms over seeds, and ends as it would have if nobody had stopped it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.errors import InputError, MaskwrightError, StoppedError, TrainingError
from maskwright.evaluation.seeds import compare_groups
from maskwright.files import locking_folder
from maskwright.sweeping import experiment as module
from maskwright.sweeping import processes, results
from maskwright.sweeping.experiment import experiment, read_experiment
from maskwright.sweeping.results import Experiment
from tests.command import Cli
from tests.sweeping.machine import Machine
from tests.workplace import SMALL, write_corpus

ARMS = {"low": {"masking.rate": 0.15}, "high": {"masking.rate": 0.4}}
BLIMP = "evaluate --suite blimp --blimp pairs"
TASK = "finetune --task classification --train mails.csv"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(processes, "_start", machine)
    monkeypatch.setattr(module, "_count_cards", lambda: 0)
    monkeypatch.setattr(results, "has_matplotlib", lambda: False)
    return machine


def run(out: Path, **changes: Any) -> Experiment:
    return experiment("pretrain", ["corpus"], **{"out": out, "arms": ARMS, **changes})


def test_arms_are_compared_by_seed(machine: Machine, tmp_path: Path):
    found = run(tmp_path / "out", seeds=4)
    assert machine.jobs == [f"{arm}-{seed}" for seed in range(4) for arm in ARMS]
    losses = [[one["scores"]["loss"] for one in found["runs"] if one["arm"] == arm] for arm in ARMS]
    [difference] = found["differences"]
    assert (difference["arm"], difference["against"]) == ("high", "low")
    loss = difference["scores"][0]
    expected = compare_groups(np.array(losses[1]), np.array(losses[0]), is_paired=True)
    assert (loss["name"], loss["is_primary"], loss["differs"]) == ("loss", True, True)
    assert [loss[name] for name in ("value", "low", "high", "p_value")] == [
        expected.value, expected.low, expected.high, expected.p_value,
    ]  # fmt: skip
    [claim] = found["claims"]
    assert claim.startswith(f"high lowers loss by {-expected.value:.4f} against low (95 % interval")
    assert "4 seeds: 0, 1, 2, 3; over seeds" in claim
    assert "half as large needs" in claim
    assert json.loads((tmp_path / "out" / "experiment.json").read_text()) == found


def test_without_a_difference_nothing_is_claimed(machine: Machine, tmp_path: Path):
    machine.effect = lambda rate: 0.0
    [claim] = run(tmp_path / "out")["claims"]
    assert claim.startswith("No difference in loss between high and low may be claimed: ")
    assert "as large as the one seen needs" in claim


@pytest.mark.usefixtures("machine")
def test_one_seed_claims_nothing(tmp_path: Path):
    found = run(tmp_path / "out", seeds=1)
    assert found["differences"][0]["scores"] == []
    assert found["claims"][0].startswith("Nothing may be claimed about high and low")
    assert [one["loss"]["deviation"] for one in found["arms"].values()] == [None, None]


def test_suites_and_fine_tuning_follow_each_run(machine: Machine, tmp_path: Path):
    found = run(tmp_path / "out", then=[BLIMP, TASK])
    kinds = [name.partition(".")[2].partition("-")[0] for name in machine.jobs]
    assert kinds == ["", "evaluate", "finetune"] * 6
    names = ["loss", "seen_mask_accuracy", "blimp/mean_over_paradigms", "finetune/accuracy"]
    for one in found["runs"]:
        assert list(one["scores"]) == names
    scores = {score["name"]: score for score in found["differences"][0]["scores"]}
    assert [scores[name]["over"] for name in names] == [
        "seeds",
        "seeds",
        "seeds and pairs",
        "seeds",
    ]
    pairs = scores["blimp/mean_over_paradigms"]
    values = [
        [one["scores"]["blimp/mean_over_paradigms"] for one in found["runs"] if one["arm"] == arm]
        for arm in ("high", "low")
    ]
    over_seeds = compare_groups(*map(np.array, values), is_paired=True)
    assert pairs["value"] == pytest.approx(over_seeds.value)
    assert pairs["p_value"] != over_seeds.p_value
    exploratory = [one for one in scores.values() if not one["is_primary"]]
    smallest = min(one["p_value"] for one in exploratory)
    assert min(one["p_adjusted"] for one in exploratory) == pytest.approx(3 * smallest)


@pytest.mark.parametrize("metric", ["accuracy", "found"])
def test_fine_tuning_is_compared_by_its_deciding_metric(
    metric: str, machine: Machine, tmp_path: Path
):
    machine.metric = metric
    arms = {"slow": {"learning_rate": 1e-5}, "fast": {"learning_rate": 1e-3}}
    task = ["runs/x", "--task", "classification", "--train", "mails.csv"]
    found = experiment("finetune", task, out=tmp_path / "out", arms=arms)
    assert machine.jobs == [f"{arm}-{seed}" for seed in range(3) for arm in arms]
    assert found["primary"] == ("score" if metric == "found" else metric)
    [score] = found["differences"][0]["scores"]
    assert score["name"] == found["primary"]
    for flag, value in (("--first_seed", "2"), ("--seeds", "1"), ("--learning_rate", "0.001")):
        assert machine.last[machine.last.index(flag) + 1] == value


def test_another_score_can_be_primary_and_compare_reads_the_same(
    machine: Machine, tmp_path: Path, cli: Cli
):
    name = "blimp/mean_over_paradigms"
    found = run(tmp_path / "out", then=[BLIMP], primary=name)
    assert found["differences"][0]["scores"][0]["name"] == found["primary"] == name
    assert "high raises blimp/mean_over_paradigms" in found["claims"][0]
    said = cli("compare", tmp_path / "out")
    assert found["claims"][0] in said
    assert "primary score: blimp/mean_over_paradigms. The others are exploratory" in said
    assert len(machine.jobs) == 12
    again = read_experiment(tmp_path / "out", "loss")
    assert again["primary"] == "loss"
    assert again["runs"] == found["runs"]
    for flags, message in (
        (["--primary", "los"], "did you mean loss?"),
        (["--data", "x"], "--data has no effect"),
        (["--out", tmp_path / "x"], "--out has no effect"),
    ):
        assert message in cli.refuse("compare", tmp_path / "out", *flags)


def test_an_experiment_that_was_stopped_is_resumed(machine: Machine, tmp_path: Path):
    whole = run(tmp_path / "whole", then=[BLIMP])
    for stopped in [*machine.jobs]:
        machine.jobs.clear()
        machine.codes = {stopped: -15}
        out = tmp_path / f"stopped-{stopped}"
        with pytest.raises(StoppedError, match="the same command resumes"):
            run(out, then=[BLIMP])
        assert machine.jobs[-1] == stopped
        found = run(out, then=[BLIMP])
        assert machine.jobs.count(stopped) == 2
        assert len(machine.jobs) == 13
        for key in ("runs", "differences", "claims"):
            assert found[key] == whole[key]


def test_arms_seeds_and_suites_can_be_added(machine: Machine, tmp_path: Path):
    run(tmp_path / "out", seeds=2)
    machine.jobs.clear()
    arms = {**ARMS, "half": {"masking.rate": 0.5}}
    found = run(tmp_path / "out", seeds=[0, 1, 7], arms=arms, then=[TASK])
    trained = [name for name in machine.jobs if "finetune" not in name]
    assert sorted(trained) == ["half-0", "half-1", "half-7", "high-7", "low-7"]
    assert len(machine.jobs) == 5 + 9
    assert [one["arm"] for one in found["differences"]] == ["high", "half"]
    p = [one["scores"][0] for one in found["differences"]]  # two tests of the primary score
    smaller = min(p, key=lambda one: one["p_value"])
    assert smaller["p_adjusted"] == pytest.approx(2 * smaller["p_value"])


@pytest.mark.parametrize(
    "changes",
    [{"arms": {**ARMS, "low": {"masking.rate": 0.2}}}, {"arms": {"a": {}, "b": ARMS["low"]}}],
)
def test_a_folder_has_one_experiment(changes: Mapping[str, Any], machine: Machine, tmp_path: Path):
    machine.codes = {"low-0": 2}
    with pytest.raises(InputError, match="the first run fails: InputError: a mistake"):
        run(tmp_path / "out")
    assert machine.jobs == ["low-0"]
    run(tmp_path / "out", arms={"a": {"masking.rate": 0.1}, **ARMS})  # nothing has a result yet
    with pytest.raises(InputError, match="other arguments or arms"):
        run(tmp_path / "out", **changes)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "book.txt").touch()
    with pytest.raises(InputError, match="holds something else"):
        run(tmp_path / "full")
    with (
        locking_folder(tmp_path / "out", lambda: None, print),
        pytest.raises(InputError, match="is in use"),
    ):
        run(tmp_path / "out")


def test_a_run_that_fails_leaves_its_seed_out(machine: Machine, tmp_path: Path):
    machine.codes = {"high-1": 1}
    found = run(tmp_path / "out", seeds=4, then=[BLIMP])
    assert found["differences"][0]["seeds"] == [0, 2, 3]
    assert [one.get("failed") for one in found["runs"] if one["seed"] == 1] == [None, "high-1.log"]
    machine.codes = {f"{arm}-{seed}": 1 for arm in ARMS for seed in range(9)}
    with pytest.raises(TrainingError, match="3 runs failed one after the other"):
        run(tmp_path / "other")


def test_several_runs_at_once_have_their_own_place(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "count_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = run(tmp_path / "cores", jobs=2)
    assert {one["OMP_NUM_THREADS"] for one in machine.environments} == {"2"}
    assert sorted(machine.jobs) == sorted(f"{arm}-{seed}" for arm in ARMS for seed in range(3))
    machine.environments.clear()
    monkeypatch.setattr(module, "_count_cards", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    same = run(tmp_path / "cards")
    assert {one["CUDA_VISIBLE_DEVICES"] for one in machine.environments} == {"5", "3"}
    assert found["differences"] == same["differences"]
    with pytest.raises(InputError, match="--jobs = 5"):
        run(tmp_path / "more", jobs=5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": {"low": {}}}, "two arms or more"),
        ({"arms": {"a": {}, "b": {}}}, "the same fields"),
        ({"arms": {"a/b": {}, "b": {"masking.rate": 0.2}}}, "must be a name"),
        ({"arms": {"a": {"masking.rat": 1}, "b": {}}}, r"masking\.rate"),
        ({"arms": {"a": {"masking.rate": "often"}, "b": {}}}, r"masking\.rate"),
        ({"arms": {"a": {"seed": 1}, "b": {}}}, "Use --seeds"),
        ({"arms": {"a": {"tokenizer.vocab_size": 999}, "b": {}}}, "losses are not comparable"),
        ({"seeds": 0}, "--seeds = 0"),
        ({"seeds": [1, 1]}, "--seeds"),
        ({"then": ["serve"]}, "--then 'serve'"),
        ({"then": [BLIMP, BLIMP]}, "the suite blimp twice"),
        ({"then": ["evaluate --suite glue"]}, "no suite glue"),
        ({"primary": "blimp/mean_over_paradigms"}, "--primary is one of loss"),
    ],
)
def test_mistakes(changes: Mapping[str, Any], message: str, machine: Machine, tmp_path: Path):
    with pytest.raises(MaskwrightError, match=message):
        run(tmp_path / "out", **changes)
    assert machine.jobs == []


@pytest.mark.usefixtures("machine")
def test_arms_of_other_tokenizers_are_compared_by_a_suite_alone(tmp_path: Path):
    arms = {
        name: {**fields, "tokenizer.vocab_size": size}
        for (name, fields), size in zip(ARMS.items(), (500, 900), strict=True)
    }
    found = run(tmp_path / "out", arms=arms, then=[BLIMP], primary="blimp/mean_over_paradigms")
    assert {name for one in found["runs"] for name in one["scores"]} == {found["primary"]}


_FILE = """
command: pretrain
arguments: corpus --train.max_steps 10
arms:
  low: {masking.rate: 0.15, optim.name: adamw}
  high: {masking.rate: 0.4, optim.name: adamw}
seeds: 2
then: [evaluate --suite blimp --blimp pairs]
"""


def test_flags_and_a_file_are_the_same_experiment(machine: Machine, tmp_path: Path, cli: Cli):
    (tmp_path / "rates.yaml").write_text(_FILE)
    said = cli("sweep", tmp_path / "rates.yaml", "--out", tmp_path / "file")
    flags = ["corpus", "--train.max_steps", "10", "--seeds", "2", "--then", BLIMP]
    for name, rate in (("low", "0.15"), ("high", "0.4")):
        flags += ["--arm", name, f"masking.rate={rate}", "optim.name=adamw"]
    cli("sweep", "pretrain", *flags, "--out", tmp_path / "flags")
    plans = [json.loads((tmp_path / n / "plan.json").read_text()) for n in ("file", "flags")]
    assert plans[0] == plans[1]
    assert len(machine.jobs) == 16
    assert "run 1 of 4: low, seed 0 (masking.rate 0.15, optim.name adamw)" in said
    for name in ("report.html", "experiment.json", "tables.md", "tables.tex"):
        assert name in said
        assert (tmp_path / "file" / name).stat().st_size > 300
    claim = json.loads((tmp_path / "file" / "experiment.json").read_text())["claims"][0]
    assert claim in said
    assert claim.partition(" against ")[0] in (tmp_path / "file" / "report.html").read_text()


def test_lists_alone_are_arms(machine: Machine, tmp_path: Path, cli: Cli):
    over = ["--over", "masking.rate=0.1,0.2", "--over", "optim.name=adamw,muon"]
    said = cli("sweep", "pretrain", "corpus", *over, "--seeds", "2", "--out", tmp_path / "out")
    assert len(machine.jobs) == 8
    assert "rate=0.2,name=muon minus rate=0.1,name=adamw" in said


def test_what_the_command_refuses(machine: Machine, tmp_path: Path, cli: Cli):
    (tmp_path / "rates.yaml").write_text(_FILE)
    (tmp_path / "wrong.yaml").write_text("command: pretrain\narm: {}\n")
    (tmp_path / "kind.yaml").write_text("command: pretrain\narms: [a, b]\n")
    arms = ["--arm", "low", "masking.rate=0.15", "--arm", "high", "masking.rate=0.4"]
    for flags, message in (
        (["train", "corpus", *arms], "train is no command of sweep"),
        (["pretrain", "corpus", *arms, "--over", "masking.rate=0.1..0.2"], "--over has no effect"),
        (["pretrain", "corpus", *arms, "--trials", "3"], "--trials has no effect"),
        (["pretrain", "corpus", *arms, "--arm", "low"], "--arm low is given twice"),
        (["pretrain", *arms, "corpus"], "corpus is not FIELD=VALUE"),
        (["pretrain", "corpus", "--arm", "a=b"], "without a name"),
        (["pretrain", "corpus", *arms, "--then", "evaluate --suit mlm"], "--suit"),
        (["pretrain", "corpus", *arms, "--then", "evaluate --out x"], "--out has no effect"),
        (["pretrain", "corpus", "--over", "masking.rate=0.1..0.2", "--jobs", "2"], "--jobs"),
        (["pretrain", "corpus", "--over", "masking.rate=0.1..0.2", "--seeds", "2"], "--seeds"),
        ([tmp_path / "rates.yaml", "--arm", "low"], "--arm has no effect"),
        ([tmp_path / "wrong.yaml"], "did you mean arms?"),
        ([tmp_path / "kind.yaml"], "arms"),
    ):
        assert message in cli.refuse("sweep", *flags, "--out", tmp_path / "out")
    assert machine.jobs == []


@pytest.mark.usefixtures("drawn_charts")
def test_real_runs(tmp_path: Path, cli: Cli):
    text = write_corpus(tmp_path / "animals.txt", 60)
    flags = [*SMALL, "--train.max_steps", "2", "--data-dir", str(tmp_path / "data"), "--jobs", "1"]
    arms = ["--arm", "low", "--arm", "high", "masking.rate=0.4", "--seeds", "2"]
    said = cli("sweep", "pretrain", text, *flags, *arms, "--out", tmp_path / "out")
    assert "high minus low" in said
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "out" / "report.html").read_text("utf-8")
