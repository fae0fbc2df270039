"""Continuing to pretrain models that exist, ours and those of transformers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from maskwright import pretrain
from maskwright.cli.main import main
from maskwright.errors import ConfigError
from maskwright.files import hash_file
from maskwright.logs import Record, read_metrics
from maskwright.model.config import to_model_config
from maskwright.model_folder.folder import describe_folder
from maskwright.runs.config import resolve
from maskwright.runs.run_directory import load_run_config
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.command import Cli
from tests.hub_folders import TWINS, read_twin, write_twin
from tests.workplace import data_of

FAST = [
    "--train.max_steps", "3", "--train.batch_tokens", "256", "--train.compile", "off",
    "--train.log_every_steps", "1", "--train.num_validations", "1", "--data.max_seq_length", "32",
    "--train.valid_tokens", "512", "--train.final_valid_tokens", "512", "--train.report", "false",
    "--corpus.valid_fraction", "0.1", "--corpus.deduplicate", "false",
]  # fmt: skip


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_twin(tmp_path_factory.mktemp("twin") / "bert", "bert")


def command(text: Path, folder: Path | str, root: Path, *flags: str) -> list[str]:
    """Continues `folder` in ``root/run``."""
    places = ["--runs-dir", str(root), "--name", "run", "--data-dir", str(root / "data")]
    return ["pretrain", str(text), "--init-from", str(folder), *places, *FAST, *flags]


def scores_of(run: Path) -> list[Record]:
    return [r for r in read_metrics(run / "metrics.jsonl") if r["split"] == "valid"]


@pytest.mark.parametrize("model_type", TWINS)
def test_a_model_of_transformers_goes_on(
    model_type: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a rate of next to nothing it comes out as it went in."""
    twin, run = write_twin(tmp_path / "twin", model_type), tmp_path / "run"
    flags = ["--optim.learning_rate", "1e-12", "--optim.weight_decay", "0"]
    flags += ["--masking.strategy", "words"]
    assert main(command(text, twin, tmp_path, *flags)) == 0
    first, last = scores_of(run)
    assert (first["step"], first["final"], last["step"], last["final"]) == (0, False, 3, True)
    assert first["loss"] == pytest.approx(last["loss"], abs=1e-5)
    assert f"before {first['seen_mask_accuracy']:.3f}" in capsys.readouterr().out
    old, new = describe_folder(twin), describe_folder(run / "model")
    before, after = read_twin(twin).state_dict(), read_twin(run / "model").state_dict()
    assert before.keys() == after.keys()
    # RoBERTa's first positions are for padding alone.
    unused = old.tokenizer.pad_id + 1 if "roberta" in model_type else 0
    for name in before:
        first = unused * name.endswith("position_embeddings.weight")
        assert torch.allclose(before[name][first:], after[name][first:], atol=1e-6), name
    assert new.family.model_type == model_type
    assert new.config.pad_token_id == old.tokenizer.pad_id
    [data] = (tmp_path / "data").iterdir()
    tokens = TokenStore.open(data, "train").tokens(0, 10).tolist()
    encode, lines = Tokenizer.load(twin).encode, text.read_text(encoding="utf-8").splitlines()
    assert any(tokens == encode(line).ids[:10].tolist() for line in lines)


def test_the_configuration_tells_the_truth(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(text, bert, tmp_path, "--print-config")) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    tokenizer = Tokenizer.load(bert)
    assert config["init_from"] == str(bert)
    assert config["tokenizer"]["path"] == str(bert)
    assert config["tokenizer"]["vocab_size"] == tokenizer.vocab_size
    assert config["data"]["special_tokens"] is True
    model = config["model"]
    assert (model["preset"], model["hidden_size"], model["positions"]) == ("bert", 32, "learned")
    assert model["vocab_size"] == tokenizer.vocab_size
    assert model["hidden_dropout"] == 0.1
    assert config["optim"]["name"] == "adamw"  # of the recipe `continue`
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("num_bytes", [100_000, 5_000_000])
def test_little_text_makes_many_steps_and_no_endless_passes(num_bytes: int) -> None:
    train = resolve(None, overrides={"init_from": "a model"}).train
    num_tokens = num_bytes / 4.2  # English, some 16 thousand tokens
    budget = train.count_epochs(num_tokens)
    assert budget.max_tokens is not None
    assert budget.max_tokens == round(100 * num_tokens)
    assert budget.max_tokens / train.batch_tokens > 500
    assert num_tokens / train.batch_tokens > 5  # a pass
    assert budget.max_minutes == 30


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.hidden_size", "64"], "model.hidden_size = 64 contradicts {bert}, which has 32"),
        (["--model.preset", "eurobert"], "model.preset = eurobert contradicts"),
        (["--model.norm_eps", "1e-6"], "model.norm_eps = 1e-06 contradicts"),
        (["--tokenizer.kind", "bpe"], "tokenizer.kind = bpe contradicts {bert}, which has wordpi"),
        (["--tokenizer.vocab_size", "4096"], "tokenizer.vocab_size = 4096 contradicts"),
        (["--data.special_tokens", "false"], "data.special_tokens = False contradicts"),
        (
            ["--data.max_seq_length", "512"],
            "data.max_seq_length = 512 is longer than the 64 positions of {bert}. Give at most 64.",
        ),
        (["--model.max_position_embeddings", "128"], "max_position_embeddings = 128 contradicts"),
        (["--model.max_position_embeddings", "32"], "To use fewer, set data.max_seq_length."),
        (["--init-from", "{bert}/none"], "{bert}/none is not a folder."),
    ],
)
def test_contradictions_are_errors(
    flags: list[str], message: str, bert: Path, text: Path, tmp_path: Path,
    cli: Cli,
) -> None:  # fmt: skip
    flags = [flag.format(bert=bert) for flag in flags]
    shown = cli.refuse(*command(text, bert, tmp_path, *flags))
    assert message.format(bert=bert) in shown
    assert not list(tmp_path.iterdir())


def test_a_file_may_not_contradict_either(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"init_from: {bert}\nmodel:\n  num_hidden_layers: 3\n", encoding="utf-8")
    assert main(["pretrain", str(text), "--config", str(file), "--train.max_steps", "1"]) == 2
    assert "num_hidden_layers = 3 contradicts" in capsys.readouterr().err


def test_what_only_training_reads_may_be_given(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model.attention_dropout", "0", "--model.attention_backend", "reference"]
    flags += ["--model.hidden_size", "32"]  # no contradiction
    assert main(command(text, bert, tmp_path, *flags, "--print-config")) == 0
    model = yaml.safe_load(capsys.readouterr().out)["model"]
    assert (model["attention_dropout"], model["hidden_dropout"]) == (0, 0.1)
    assert model["attention_backend"] == "reference"


def test_rows_of_a_recipe_are_shortened_and_those_of_the_user_are_not(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["pretrain", str(text), "--init-from", str(bert), "--recipe", "auto", "--print-config"]
    assert main(asked) == 0
    said = capsys.readouterr()
    config = yaml.safe_load(said.out)
    assert config["data"]["max_seq_length"] == 64
    assert config["train"]["seq_length_schedule"] == ["0:32", "0.25:64", "0.7:64"]
    assert f"data.max_seq_length is 64, not 128: {bert} has 64 positions" in said.err
    assert main([*asked, "--train.seq_length_schedule", "0:32,0.5:128"]) == 2
    assert "train.seq_length_schedule" in capsys.readouterr().err


def test_computed_positions_can_be_more(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = write_twin(tmp_path / "twin", "modernbert")
    longer = ["--data.max_seq_length", "96"]
    assert main(command(text, twin, tmp_path, *longer)) == 2
    assert "Give at most 64, or --model.max_position_embeddings 96 as" in capsys.readouterr().err
    longer += ["--model.max_position_embeddings", "128"]
    assert main(command(text, twin, tmp_path, *longer)) == 0
    assert describe_folder(tmp_path / "run" / "model").config.max_position_embeddings == 128
    assert load_run_config(tmp_path / "run", {}).model.max_position_embeddings == 128


def test_a_resumed_run_needs_the_folder_no_more(text: Path, tmp_path: Path) -> None:
    """Even where only `layer_types` can say what its layers are."""
    types = ["sliding_attention", "full_attention"]
    twin = write_twin(tmp_path / "twin", "modernbert", layer_types=types, local_attention=8)
    flags = ["--train.max_steps", "4", "--train.checkpoint_every_minutes", "1e-9"]
    flags += ["--train.keep_checkpoints", "9"]
    arguments = command(text, twin, tmp_path, *flags)
    assert main(arguments) == 0
    run, whole = tmp_path / "run", tmp_path / "whole"
    shutil.copytree(run, whole)
    shutil.rmtree(twin)
    for resume in (["pretrain", "--resume", str(run)], [*arguments, "--auto-resume"]):
        shutil.rmtree(run / "model")
        for checkpoint in (run / "checkpoints").iterdir():
            if int(checkpoint.name.removeprefix("step_")) > 2:
                shutil.rmtree(checkpoint)
        assert main(resume) == 0
        for name in ("model.safetensors", "config.json"):
            assert hash_file(run / "model" / name) == hash_file(whole / "model" / name)
        records = read_metrics(run / "metrics.jsonl")
        assert [r["step"] for r in records if r["split"] == "train"] == [1, 2, 3, 4]
    config = describe_folder(run / "model").config
    assert list(config.layer_types) == types
    assert load_run_config(run, {}).model == to_model_config(config)


def test_the_record_says_where_it_came_from(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(text, bert, tmp_path)) == 0
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text(encoding="utf-8"))
    sha256 = hash_file(bert / "model.safetensors")
    assert provenance["init_from"]["folder"] == str(bert.resolve())
    assert provenance["init_from"]["sha256"] == {"model.safetensors": sha256}
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"continued from `{bert.name}` (sha256 of model.safetensors `{sha256}`)" in card
    assert "| | model | before | unigram baseline |" in card
    assert f"Tokenizer: that of `{bert.name}`, " in card
    assert main(["pretrain", "--resume", str(tmp_path / "run"), "--init-from", "x"]) == 2
    assert "init_from = x cannot change when a run is resumed" in capsys.readouterr().err


def test_a_run_of_ours_goes_on_and_learns(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same grammar with another food for every animal: what was learned has to change."""
    words = (workplace / "animals.txt").read_text(encoding="utf-8")
    for old, new in {"grass": "GRASS", "fish": "grass", "GRASS": "fish"}.items():
        words = words.replace(old, new)
    domain = tmp_path / "domain.txt"
    domain.write_text(words, encoding="utf-8")
    flags = ["--train.max_steps", "60", "--optim.learning_rate", "0.003"]
    flags += ["--train.final_valid_tokens", "2048"]
    arguments = command(domain, workplace / "runs" / "small", tmp_path, *flags)
    assert main([*arguments, "--dry-run"]) == 0
    assert f"init_from    {workplace / 'runs' / 'small'}: " in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
    assert main(arguments) == 0
    first, last = scores_of(tmp_path / "run")
    assert last["loss"] < first["loss"] - 0.1
    assert first["masked_accuracy"] > first["unigram_accuracy"]  # it was no random model


def test_prepared_data_must_have_the_same_tokenizer(
    workplace: Path, bert: Path, tmp_path: Path, cli: Cli
) -> None:
    data = data_of(workplace)
    model = workplace / "runs" / "small" / "model"
    flags = [flag for flag in FAST if "corpus" not in flag][:-2]
    places = ["--runs-dir", str(tmp_path), "--name", "run"]
    assert main(["pretrain", str(data), "--init-from", str(model), *places, *flags]) == 0
    assert load_run_config(tmp_path / "run", {}).tokenizer.path is None
    other = ["pretrain", str(data), "--init-from", str(bert), *places, *flags]
    message = f"ShardError: {data} was prepared with another tokenizer than that of {bert}"
    assert message in cli.refuse(*other)


def test_folders_that_are_no_models(bert: Path, text: Path, tmp_path: Path, cli: Cli) -> None:
    """One line each, before any text is prepared; nothing is written."""
    pickle, old, spoiled = (tmp_path / name for name in ("pickle", "old", "spoiled"))
    for folder in (pickle, old, spoiled):
        shutil.copytree(bert, folder)
    (pickle / "model.safetensors").rename(pickle / "pytorch_model.bin")
    (old / "tokenizer.json").unlink()
    spoil(spoiled / "model.safetensors")
    for folder, message in {
        pickle: "pytorch_model.bin is a pickle, and reading a pickle can run code. If you",
        old: "holds no tokenizer.json.",
        spoiled: "holds NaN or infinity.",
        tmp_path / "none": "is not a folder.",
    }.items():
        for flags in ([], ["--dry-run"]):
            assert message in cli.refuse(*command(text, folder, tmp_path, *flags))
    assert {path.name for path in tmp_path.iterdir()} == {"pickle", "old", "spoiled"}


def spoil(weights: Path) -> None:
    tensors = load_file(weights)
    next(iter(tensors.values()))[0] = float("nan")
    save_file(tensors, weights)


def test_wrapping_that_is_no_pair_must_be_said(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tokenizer that only puts its first token before a text."""
    twin = write_twin(tmp_path / "twin", "eurobert")
    description = json.loads((twin / "tokenizer.json").read_text(encoding="utf-8"))
    description["post_processor"]["single"].pop()
    (twin / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    assert main(command(text, twin, tmp_path)) == 2
    assert "data.special_tokens = None cannot be inferred" in capsys.readouterr().err
    assert main(command(text, twin, tmp_path, "--data.special_tokens", "true")) == 0
    assert load_run_config(tmp_path / "run", {}).data.special_tokens


def test_the_python_interface(bert: Path, text: Path, tmp_path: Path) -> None:
    fast = {"max_steps": 2, "batch_tokens": 256, "compile": "off", "report": False}
    folder = pretrain(
        text.as_posix(),
        init_from=bert,
        out=tmp_path / "run",
        data_dir=tmp_path / "data",
        train={**fast, "num_validations": 1, "final_valid_tokens": 512},
        corpus={"valid_fraction": 0.1},
    )
    assert describe_folder(folder).family.model_type == "bert"
    assert load_run_config(tmp_path / "run", {}).optim.name == "adamw"
    with pytest.raises(ConfigError, match=r"model.hidden_size = 48 contradicts"):
        pretrain(text.as_posix(), init_from=bert, model={"hidden_size": 48})
    with pytest.raises(TypeError, match="not both"):
        pretrain(text.as_posix(), init_from=bert, config=load_run_config(tmp_path / "run", {}))


def test_a_model_from_the_hub(
    bert: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "cache" / "snapshot"
    shutil.copytree(bert, cached)
    asked: list[str] = []

    def snapshot_download(repository: str, **options: object) -> str:
        asked.append(f"{repository}@{options['revision']}")
        return str(cached)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert main(command(text, "hf:me/bert@v1", tmp_path)) == 0
    assert set(asked) == {"me/bert@v1"}
    config = load_run_config(tmp_path / "run", {})
    assert (config.init_from, config.tokenizer.path) == ("hf:me/bert@v1", str(cached))
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "Tokenizer: that of `hf:me/bert@v1`, " in card
    assert "cache" not in card


def test_prepare_takes_the_tokenizer_of_a_runs_file(
    bert: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = tmp_path / "my.yaml", tmp_path / "data"
    file.write_text(f"init_from: {bert}\nrecipe: continue\n", encoding="utf-8")
    flags = ["--corpus.valid_fraction", "0.1", "--config", str(file)]
    assert main(["prepare", str(text), "--out", str(data), *flags]) == 0
    fingerprint = Tokenizer.load(bert).fingerprint
    assert TokenStore.open(data, "train").tokenizer_fingerprint == fingerprint
    capsys.readouterr()
    assert main(["pretrain", str(data), "--config", str(file), "--print-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["tokenizer"]["path"] == str(bert)


def test_the_recipe_needs_a_model(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", str(text), "--recipe", "continue"]) == 2
    assert "init_from = None is required by the recipe continue" in capsys.readouterr().err


def test_a_run_from_scratch_scores_no_beginning(workplace: Path) -> None:
    assert all(record["step"] > 0 for record in scores_of(workplace / "runs" / "small"))
