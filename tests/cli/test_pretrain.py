"""The main job through the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from maskwright.cli.main import main
from maskwright.config import merge
from maskwright.logs import read_metrics
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.run_directory import load_run_config
from tests.command import Cli
from tests.workplace import SMALL, data_of

VALID_KEYS = {"split", "step", "tokens", "seconds", "loss", "masked_accuracy", "unigram_accuracy"}
TRAIN_KEYS = {"split", "loss", "learning_rate", "tokens_per_second"}


def test_a_line_is_printed_before_every_step_that_may_take_long(
    workplace: Path, tmp_path: Path, cli: Cli
):
    text = tmp_path / "text.txt"
    text.write_text((workplace / "animals.txt").read_text("utf-8")[:9000], encoding="utf-8")
    folders = ["--runs-dir", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data")]
    command = ["pretrain", str(text), *folders, *SMALL, "--train.max_steps", "2"]
    lines = cli(*command, "--select.near_duplicates", "0.9").splitlines()
    expected = ["looking in", "reading", "looking for near", "training a wordpiece", "encoding"]
    begun = [begin for line in lines for begin in expected if line.startswith(begin)]
    assert begun == expected


def test_a_run_learns_and_leaves_everything_behind(workplace: Path):
    run = workplace / "runs" / "small"
    assert {path.name for path in (run / "model").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    records = read_metrics(run / "metrics.jsonl")
    valid = [record for record in records if record["split"] == "valid"]
    train = [record for record in records if record["split"] == "train"]
    assert all(record.keys() >= VALID_KEYS for record in valid)
    assert all(record.keys() >= TRAIN_KEYS for record in train)
    assert valid[-1]["step"] == 150
    assert valid[-1]["masked_accuracy"] > valid[-1]["unigram_accuracy"] + 0.1
    assert valid[-1]["loss"] < valid[0]["loss"]
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["packages"]["torch"]
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert config["train"]["max_steps"] == 150
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert "unigram baseline" in card
    assert "animals.txt" in card


def test_the_same_text_is_prepared_once(workplace: Path, cli: Cli):
    folders = ["--runs-dir", str(workplace / "runs"), "--data-dir", str(workplace / "data")]
    text = str(workplace / "animals.txt")
    steps = ["--train.max_steps", "1"]
    said = cli("pretrain", text, *folders, "--name", "again", *SMALL, *steps)
    assert len(list((workplace / "data").iterdir())) == 1
    assert "reused" in said
    assert "prepared data is in" not in said


def test_changed_text_is_prepared_anew_and_a_line_says_where(
    workplace: Path, tmp_path: Path, cli: Cli
):
    text = tmp_path / "animals.txt"
    folders = ["--runs-dir", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data")]
    said = ""
    for number in range(2):
        text.write_text((workplace / "animals.txt").read_text() + "One more cat.\n" * number)
        name = ["--name", str(number), "--train.max_steps", "1"]
        said = cli("pretrain", text, *folders, *SMALL, *name)
    newest = max((tmp_path / "data").iterdir(), key=lambda folder: folder.stat().st_mtime)
    assert len(list((tmp_path / "data").iterdir())) == 2
    line = f"prepared data is in {newest}; for more runs on it: maskwright pretrain {newest}"
    assert said.splitlines().count(line) == 1


def test_resume_gives_the_same_weights_bit_for_bit(workplace: Path, tmp_path: Path):
    data = data_of(workplace)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    flags = [*SMALL, "--train.max_steps", "8", "--train.checkpoint_every_minutes", "1e-9"]
    flags += ["--train.keep_checkpoints", "20", "--runs-dir", str(tmp_path)]
    flags += ["--model.hidden_dropout", "0.1", "--train.ema_decay", "0.9"]
    flags += ["--train.log_every_steps", "1", "--train.checkpoint_words", "1K,2K,1M"]
    assert main(["pretrain", str(data), "--name", "whole", *flags]) == 0
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "model")
    shutil.rmtree(broken / "chck_2K")
    for checkpoint in (broken / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step_")) > 3:
            shutil.rmtree(checkpoint)
    assert main(["pretrain", "--resume", str(broken)]) == 0
    names = ("model", "chck_1K", "chck_2K")
    weights, again = (
        [(path / name / "model.safetensors").read_bytes() for name in names]
        for path in (whole, broken)
    )
    assert weights == again
    assert len({*weights}) == 3
    assert not (whole / "chck_1M").exists()
    losses = [
        [(r["step"], r["loss"]) for r in read_metrics(path / "metrics.jsonl")]
        for path in (whole, broken)
    ]
    assert losses[0] == losses[1]


def test_a_budget_can_be_raised_on_resume(workplace: Path, tmp_path: Path):
    run = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", run)
    assert main(["pretrain", "--resume", str(run), "--train.max_steps", "152"]) == 0
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 152
    assert load_run_config(run, {}).train.max_steps == 152  # it is kept
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    [resumption] = provenance["resumptions"]
    assert resumption["step"] == 150
    assert resumption["changes"] == {"train": {"max_steps": 152}}
    assert resumption["started"] >= provenance["started"]
    assert not {"packages", "computation"} & resumption.keys()  # they are as they were


@pytest.mark.parametrize("edit", ["seed: 7", "optim: {name: adamw}", "train: {max_steps: 152}"])
def test_an_edited_config_is_compared_with_the_recorded_one(
    workplace: Path, tmp_path: Path, cli: Cli, edit: str
):
    run = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", run)
    edited = merge(
        yaml.safe_load((run / "config.yaml").read_text()), changed := yaml.safe_load(edit)
    )
    (run / "config.yaml").write_text(yaml.safe_dump(edited))
    may_change = "train" in changed
    code, _, err = cli.run("pretrain", "--resume", run)
    assert code == (0 if may_change else 2)
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    assert [each["changes"] for each in provenance.get("resumptions", [])] == [changed] * may_change
    assert ("cannot change when a run is resumed" in err) is not may_change


def test_a_resumption_on_other_hardware_is_recorded(workplace: Path, tmp_path: Path):
    run = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", run)
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    here = provenance["computation"]
    assert (here["device"], here["ranks"], here["threads"]) == ("cpu", 1, torch.get_num_threads())
    assert here["products"] in ("float32", "bfloat16")
    assert here["compiling"].startswith("not compiling: ")
    changed = {**provenance, "computation": {**here, "threads": 99}}
    (run / "provenance.json").write_text(json.dumps(changed), encoding="utf-8")
    assert main(["pretrain", "--resume", str(run)]) == 0
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["resumptions"][0]["computation"] == here


def test_a_budget_of_another_kind_replaces_the_old_one_on_resume(workplace: Path):
    run = workplace / "runs" / "small"
    train = load_run_config(run, {"train": {"max_minutes": 5}}).train
    assert (train.max_minutes, train.max_steps) == (5, None)


def test_a_budget_of_epochs_ends_after_so_many_passes(workplace: Path, tmp_path: Path):
    [data] = (workplace / "data").iterdir()
    arguments = ["pretrain", str(data), *SMALL, "--runs-dir", str(tmp_path), "--name", "passes"]
    assert main([*arguments, "--train.max_epochs", "1.5"]) == 0
    last = read_metrics(tmp_path / "passes" / "metrics.jsonl")[-1]
    lengths = PreparedData(data).train.document_lengths
    inside = load_run_config(tmp_path / "passes", {}).data.max_seq_length - 2  # [CLS] and [SEP]
    wanted = 1.5 * (lengths + 2 * -(-lengths // inside)).sum()
    assert wanted <= last["tokens"] < wanted + 512
    assert load_run_config(tmp_path / "passes", {}).train.max_epochs == 1.5  # as it was given


def test_a_finished_run_can_be_resumed_for_its_model_alone(workplace: Path, tmp_path: Path):
    run = tmp_path / "small"
    shutil.copytree(workplace / "runs" / "small", run)
    shutil.rmtree(run / "model")
    assert main(["pretrain", "--resume", str(run)]) == 0
    model = Path("model", "README.md")
    assert (run / model).read_text() == (workplace / "runs" / "small" / model).read_text()


def test_print_config_resolves_recipe_file_and_flags(tmp_path: Path, cli: Cli):
    (tmp_path / "my.yaml").write_text(
        "model:\n  num_hidden_layers: 5\n  hidden_size: 64\n", encoding="utf-8"
    )
    flags = ["--recipe", "tiny", "--config", str(tmp_path / "my.yaml"), "--model.hidden_size", "96"]
    printed = cli("pretrain", *flags, "--train.max_steps", "7", "--print-config")
    for line in ("num_hidden_layers: 5  # file", "hidden_size: 96  # flag", "rate: 0.3  # recipe"):
        assert f"  {line}\n" in printed
    config = yaml.safe_load(printed)
    assert config["model"]["num_hidden_layers"] == 5
    assert config["model"]["hidden_size"] == 96
    assert config["tokenizer"]["vocab_size"] == 8192
    # a budget on the command line replaces the recipe's budget of another kind
    assert config["train"]["max_steps"] == 7
    assert config["train"]["max_minutes"] is None


def test_dry_run_writes_nothing(workplace: Path, cli: Cli):
    before = sorted(workplace.rglob("*"))
    folders = ["--runs-dir", str(workplace / "runs"), "--data-dir", str(workplace / "data")]
    text = str(workplace / "animals.txt")
    report = cli("pretrain", text, *folders, *SMALL, "--train.max_steps", "5", "--dry-run")
    assert all(word in report for word in ("parameters", "MB", "tokens/s", "minutes"))
    assert sorted(workplace.rglob("*")) == before
    again = [*folders, "--name", "small", *SMALL, "--train.max_steps", "5", "--dry-run"]
    assert "exists already" in cli.refuse("pretrain", text, *again)


def test_dry_run_before_preparation(workplace: Path, cli: Cli):
    arguments = ["pretrain", str(workplace / "animals.txt"), *SMALL, "--train.max_steps", "5"]
    elsewhere = workplace / "elsewhere"
    report = cli(*arguments, "--dry-run", "--data-dir", elsewhere)
    guess = (workplace / "animals.txt").stat().st_size / 4.2
    assert f"not prepared yet; about {guess:,.0f} tokens" in report
    assert all(word in report for word in ("tokens/s", "minutes", "epochs"))
    assert not elsewhere.exists()
