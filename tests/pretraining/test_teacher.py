"""Learning from a teacher: ``pretrain --teacher``."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from maskwright import pretrain
from maskwright.cli.main import main
from maskwright.errors import CheckpointError
from maskwright.files import hash_file
from maskwright.logs import read_metrics
from maskwright.model_folder.folder import describe_folder, open_model
from maskwright.pretraining.build import build_model, build_trainer
from maskwright.pretraining.init_from import load_teacher, spread_layers, take_layers
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.request import read_facts
from maskwright.pretraining.settle import settle
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import load_run_config
from maskwright.runs.settled import Settled
from maskwright.train.checkpoint import find_newest, open_checkpoint
from maskwright.train.trainer import Trainer
from tests.hub_folders import write_twin
from tests.models import small_model
from tests.pretraining.test_init_from import FAST
from tests.train.helpers import Recorder
from tests.workplace import data_of, write_corpus

_STEPS = {"max_steps": 6, "batch_tokens": 256, "compile": "off", "log_every_steps": 1}
_VALID = {"num_validations": 1, "valid_tokens": 512, "final_valid_tokens": 512, "report": False}


@pytest.fixture(scope="module")
def data(workplace: Path) -> Path:
    return data_of(workplace)


def command(data: Path, teacher: Path | str, root: Path, *flags: str) -> list[str]:
    places = ["--runs-dir", str(root), "--name", "run"]
    return ["pretrain", str(data), "--teacher", str(teacher), *places, *FAST[:-4], *flags]


def make_config(data: Path, teacher: Path, **sections: object) -> PretrainConfig:
    given = {
        "teacher": str(teacher),
        "data": {"max_seq_length": 32},
        "train": {**_STEPS, **_VALID, "precision": "fp32", "device": "cpu"},
        **sections,
    }
    asked = Settled.read(None, None, {**given, "text": [str(data)]})
    return settle(asked, read_facts(asked.config)).config


def test_the_student_has_half_of_the_layers_and_begins_with_them(
    workplace: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher, run = workplace / "runs" / "small", tmp_path / "run"
    assert main(command(data, teacher, tmp_path)) == 0
    said = capsys.readouterr()
    assert "layers 0 of the teacher" in said.err
    ours, theirs = describe_folder(run / "model").config, describe_folder(teacher / "model").config
    assert theirs.num_hidden_layers == 2
    assert ours == replace(theirs, num_hidden_layers=1, layer_types=theirs.layer_types[:1])
    trained = [r for r in read_metrics(run / "metrics.jsonl") if r["split"] == "train"]
    assert all(r["distill_loss"] > 0 and 0 <= r["teacher_agreement"] <= 1 for r in trained)
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    weights = teacher / "model" / "model.safetensors"
    assert provenance["teacher"]["sha256"] == {weights.name: hash_file(weights)}
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"distilled from `small` (sha256 of model.safetensors `{hash_file(weights)}`)" in card
    assert str(workplace) not in card


def test_first_weights_are_those_of_the_teacher(workplace: Path, data: Path) -> None:
    teacher = workplace / "runs" / "small"
    config, prepared = make_config(data, teacher), PreparedData(data)
    loaded = load_teacher(config, prepared.tokenizer)
    assert loaded is not None
    student, theirs = build_model(config, prepared, teacher=loaded), loaded.model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in student.state_dict().items())
    new = make_config(data, teacher, distill={"copy_layers": False})
    random = build_model(new, prepared, teacher=loaded).state_dict()
    word = "encoder.embeddings.word.weight"
    assert not torch.equal(random[word], theirs[word])


def test_the_user_may_state_another_architecture(workplace: Path, data: Path) -> None:
    teacher = workplace / "runs" / "small"
    narrow = make_config(data, teacher, model={"hidden_size": 16, "num_hidden_layers": 3}).model
    assert (narrow.hidden_size, narrow.num_hidden_layers) == (16, 3)
    assert narrow.num_attention_heads is narrow.intermediate_size is None  # they follow the width
    own = make_config(data, teacher, model={"preset": "bert", "hidden_size": 16}).model
    assert (own.preset, own.positions, own.intermediate_size) == ("bert", None, None)


def test_text_is_prepared_with_the_tokenizer_of_the_teacher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A teacher of transformers, of which a dry run makes a student."""
    text, twin = write_corpus(tmp_path / "animals.txt", 100), write_twin(tmp_path / "twin", "bert")
    arguments = command(text, twin, tmp_path, *FAST[-4:], "--data-dir", str(tmp_path / "data"))
    assert main([*arguments, "--print-config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["tokenizer"]["path"] == config["teacher"] == str(twin)
    assert (config["model"]["preset"], config["model"]["hidden_size"]) == ("bert", 32)
    assert main([*arguments, "--dry-run"]) == 0
    assert f"teacher      {twin}" in capsys.readouterr().out
    assert main(arguments) == 0
    model = open_model(tmp_path / "run").model
    assert model.config.num_hidden_layers == -(
        -open_model(twin).model.config.num_hidden_layers // 2
    )


def train(trainer: Trainer, stop_at: int | None = None) -> Trainer:
    trainer.reporter = Recorder(stop_at)
    trainer.fit()
    return trainer


def test_a_resumed_student_is_the_uninterrupted_one(
    workplace: Path, data: Path, tmp_path: Path
) -> None:
    config = make_config(data, workplace / "runs" / "small")
    prepared = PreparedData(data)

    def build(folder: str) -> Trainer:
        teacher = load_teacher(config, prepared.tokenizer)
        (tmp_path / folder).mkdir(exist_ok=True)
        return build_trainer(config, prepared, tmp_path / folder / "c", teacher=teacher)[0]

    whole, _ = train(build("whole")), train(build("cut"), stop_at=3)
    resumed, (found, _) = build("cut"), find_newest(tmp_path / "cut" / "c")
    assert found is not None
    assert found.step == 3
    resumed.restore(open_checkpoint(found.path))
    train(resumed)
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_changed_teacher_is_refused(workplace: Path, data: Path, tmp_path: Path) -> None:
    teacher, run = tmp_path / "teacher", tmp_path / "run"
    shutil.copytree(workplace / "runs" / "small" / "model", teacher)
    train = {**_STEPS, **_VALID}
    pretrain(data, teacher=teacher, out=run, train=train, data={"max_seq_length": 32})
    begun = load_run_config(run, {})
    pretrain(resume=run, train={"max_steps": 7})
    assert load_run_config(run, {}).teacher == begun.teacher == str(teacher)
    shutil.copy(run / "model" / "model.safetensors", teacher)
    shutil.copy(run / "model" / "config.json", teacher)
    with pytest.raises(CheckpointError, match="changed"):
        pretrain(resume=run, train={"max_steps": 8})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective.name", "rtd"], "objective.name = rtd"),
        (["--data.pairs", "next"], "data.pairs"),
        (["--masking.causal_share", "0.5"], "masking.causal_share"),
        (["--data.special_tokens", "false"], "data.special_tokens = False"),
        (["--model.vocab_size", "192"], "model.vocab_size = 192"),
        (["--distill.weight", "2"], "distill.weight = 2.0"),
        (["--teacher", "{root}/none"], "{root}/none is not a folder"),
        (["--teacher", "none", "--distill.cosine", "1"], "distill.cosine = 1.0"),
        (["--model.hidden_size", "16", "--distill.cosine", "1"], "distill.cosine = 1.0"),
    ],
)
def test_contradictions_are_errors(
    flags: list[str], message: str, workplace: Path, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    flags = [flag.format(root=tmp_path) for flag in flags]
    assert main(command(data, workplace / "runs" / "small", tmp_path, *flags)) == 2
    error = capsys.readouterr().err
    assert message.format(root=tmp_path) in error.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_data_of_another_tokenizer_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = write_twin(tmp_path / "twin", "bert")
    assert main(command(data, twin, tmp_path)) == 2
    assert "was prepared with another tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "total", "layers"),
    [(6, 12, [0, 2, 4, 7, 9, 11]), (2, 4, [0, 3]), (1, 3, [0]), (3, 3, [0, 1, 2])],
)
def test_layers_are_those_of_distilbert(count: int, total: int, layers: list[int]) -> None:
    assert spread_layers(count, total) == layers


def test_a_student_takes_every_nth_layer_with_all_around_it() -> None:
    teacher, student = small_model(1, num_hidden_layers=4), small_model(0, num_hidden_layers=2)
    assert take_layers(student, teacher) == [0, 3]
    theirs = teacher.state_dict()
    for name, tensor in student.state_dict().items():
        assert torch.equal(tensor, theirs[name.replace("blocks.1.", "blocks.3.")]), name
    student.head.decoder.weight.data += 1
    assert not torch.equal(student.head.decoder.weight, teacher.head.decoder.weight)


@pytest.mark.parametrize("change", [{"intermediate_size": 48}, {"qk_norm": True}])
def test_a_student_of_other_sizes_keeps_its_random_weights(change: dict[str, Any]) -> None:
    teacher, student = (
        small_model(1, num_hidden_layers=4, preset="bert"),
        small_model(0, num_hidden_layers=2, preset="bert", **change),
    )
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    assert take_layers(student, teacher) == []
    assert all(torch.equal(t, before[n]) for n, t in student.state_dict().items())
