"""Replaced-token detection through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining

from maskwright.cli.main import main
from maskwright.evaluation.run import hash_model
from maskwright.logs import read_metrics
from maskwright.model.electra import Discriminator
from maskwright.model_folder.folder import open_encoder, open_model
from tests.command import Cli
from tests.workplace import SMALL

VALID_KEYS = {"rtd_loss", "rtd_accuracy", "rtd_base_loss", "rtd_base_accuracy", "rtd_recall"}


def pretrain(workplace: Path, name: str, *options: str) -> int:
    folders = ["--runs-dir", str(workplace / "runs"), "--data-dir", str(workplace / "data")]
    electra = ["--recipe", "electra", "--name", name, *SMALL, "--model.embedding_size", "24"]
    text = str(workplace / "animals.txt")
    return main(["pretrain", text, *folders, *electra, "--optim.learning_rate", "0.01", *options])


@pytest.fixture(scope="module")
def run(workplace: Path) -> Path:
    """A finished run."""
    options = ("--train.max_steps", "60", "--train.num_validations", "3")
    assert pretrain(workplace, "electra", *options) == 0
    return workplace / "runs" / "electra"


def test_both_models_learn(run: Path) -> None:
    records = read_metrics(run / "metrics.jsonl")
    valid = [record for record in records if record["split"] == "valid"]
    train = [record for record in records if record["split"] == "train"]
    assert all(record.keys() >= VALID_KEYS for record in valid)
    assert train[-1]["loss"] < train[0]["loss"]
    assert train[-1]["rtd_loss"] < train[0]["rtd_loss"]
    assert valid[-1]["masked_accuracy"] > valid[-1]["unigram_accuracy"]
    assert valid[-1]["rtd_accuracy"] > valid[-1]["rtd_base_accuracy"]
    assert valid[-1]["rtd_loss"] < valid[-1]["rtd_base_loss"]


def test_two_folders_are_left_and_transformers_loads_both(run: Path) -> None:
    theirs = AutoModelForPreTraining.from_pretrained(run / "model")
    assert type(theirs).__name__ == "ElectraForPreTraining"
    assert type(AutoModelForMaskedLM.from_pretrained(run / "generator")).__name__ == (
        "ElectraForMaskedLM"
    )
    discriminator, generator = (
        open_encoder(run / "model").model,
        open_model(run / "generator").model,
    )
    assert isinstance(discriminator, Discriminator)
    assert (discriminator.config.hidden_size, generator.config.hidden_size) == (32, 8)
    words = discriminator.encoder.embeddings.word.weight
    assert torch.equal(words, generator.encoder.embeddings.word.weight)
    card = (run / "model/README.md").read_text(encoding="utf-8")
    for part in ("A discriminator of replaced tokens", "replaced-token accuracy", "animals.txt"):
        assert part in card
    assert "A masked language model" in (run / "generator/README.md").read_text(encoding="utf-8")


def test_a_deberta_with_disentangled_embeddings_is_left_in_names_of_transformers(workplace: Path):
    deberta = ["--model.preset", "deberta-v2", "--model.embedding_size", "32"]
    shared = ["--objective.generator_share", "1", "--objective.disentangled_embeddings", "true"]
    budget = ["--train.max_steps", "4", "--train.num_validations", "1"]
    assert pretrain(workplace, "deberta", *deberta, *shared, *budget) == 0
    encoder = AutoModel.from_pretrained(workplace / "runs/deberta/model")
    generator = AutoModelForMaskedLM.from_pretrained(workplace / "runs/deberta/generator")
    assert type(encoder).__name__ == "DebertaV2Model"
    assert type(generator).__name__ == "DebertaV2ForMaskedLM"
    words = encoder.embeddings.word_embeddings.weight
    apart = (words - generator.deberta.embeddings.word_embeddings.weight).abs().max()
    assert 0 < apart < 0.1  # four steps of the deltas


def test_vectors_are_the_discriminators(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    assert main(["embed", str(run), "The old cat.", "A bird.", "--out", str(out)]) == 0
    assert np.load(out).shape == (2, 32)


def test_words_are_filled_in_by_the_generator_alone(run: Path, cli: Cli) -> None:
    sentence = "The small [MASK] eats fish every day."
    assert main(["fill", str(run / "generator"), sentence]) == 0
    line = cli.refuse("fill", str(run), sentence)
    assert f"{run / 'model'} is a discriminator" in line
    assert line.endswith(f"use its generator {run / 'generator'}.")


def test_the_suites_score_the_generator_on_the_data_of_the_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--suite", "mlm,fill", "--fast", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "its generator is scored" in err
    result = json.loads(out)
    assert result["model"]["sha256"] == hash_model(run / "model")  # of the run, whatever is scored
    mlm = {score["name"]: score for score in result["suites"][0]["scores"]}
    assert mlm["masked_accuracy"]["value"] > mlm["masked_accuracy"]["baseline"]
    assert (run / "evaluation.json").is_file()


def test_suites_of_both_models_stand_beside_each_other(run: Path, tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    table.write_text("sentence1,sentence2,score\nA cat.,A cat.,1\nA cat.,A bird.,0\n")
    assert main(["evaluate", str(run), "--suite", "fill"]) == 0
    assert main(["evaluate", str(run), "--suite", "sts", "--data", str(table)]) == 0
    found = json.loads((run / "evaluation.json").read_text())["suites"]
    assert {"fill", "sts"} <= {suite["suite"] for suite in found}


def test_a_dry_run_counts_both(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(workplace, "none", "--train.max_steps", "8", "--dry-run") == 0
    report = capsys.readouterr().out
    assert "parameters: discriminator " in report
    assert "which share their embeddings" in report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train.parallel", "fsdp"], "train.parallel = fsdp cannot be combined with objective"),
        (["--objective.generator_share", "0"], "objective.generator_share = 0.0 must be above 0"),
        (["--objective.discriminator_weight", "-1"], "objective.discriminator_weight = -1.0 must"),
        (["--init-from", "runs/small"], "runs/small cannot be combined with objective"),
    ],
)
def test_what_cannot_be_is_one_line(
    options: list[str], message: str, workplace: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(workplace)
    assert pretrain(workplace, "never", *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (workplace / "runs/never").exists()
