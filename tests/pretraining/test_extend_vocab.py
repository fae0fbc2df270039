"""A model that exists learns new words: ``--init-from`` with ``--extend-vocab``."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoTokenizer

from maskwright.cli.main import main
from maskwright.model_folder.folder import open_model
from maskwright.pretraining.build import build_model
from maskwright.pretraining.init_from import load_initial
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.run_directory import load_run_config
from maskwright.shards.manifest import read_manifest
from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.hub_folders import TWINS, read_twin, write_twin
from tests.pretraining.test_init_from import command

WORDS = "encoder.embeddings.word.weight"


@pytest.mark.parametrize("model_type", TWINS)
def test_new_rows_are_the_mean_of_the_old_pieces(
    model_type: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin, run = write_twin(tmp_path / "twin", model_type), tmp_path / "run"
    assert main(command(text, twin, tmp_path, "--extend-vocab", "16")) == 0
    said = capsys.readouterr().out
    config, [folder] = load_run_config(run, {}), (tmp_path / "data").iterdir()
    data, old = PreparedData(folder), open_model(twin)
    base, more = old.tokenizer, data.tokenizer
    assert more.vocab_size == base.vocab_size + 16
    assert config.model.vocab_size == -(-more.vocab_size // 64) * 64
    model = build_model(config, data, load_initial(config))
    new = dict(model.named_parameters())
    for name, before in old.model.named_parameters():
        assert torch.equal(new[name][: base.vocab_size], before[: base.vocab_size])
    pieces, before = TokenText(base), old.model.encoder.embeddings.word.weight
    for token_id in range(base.vocab_size, more.vocab_size):
        ids = pieces.cut_token(more.token(token_id))
        assert len(ids) > 1
        assert torch.allclose(new[WORDS][token_id], before[ids].mean(0), atol=1e-7)
    record = read_manifest(folder).source["tokenizer_extension"]
    assert record["fertility"] < record["fertility_before"]
    assert f"{record['fertility_before']:.3f} before, {record['fertility']:.3f} now" in said
    line = f"tokenizer: {base.vocab_size:,} tokens before, {more.vocab_size:,} now"
    assert line in said.splitlines()
    assert "new tokens: " in said
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["corpus"]["tokenizer_extension"] == record
    assert "Of these, 16 were added" in (run / "model" / "README.md").read_text(encoding="utf-8")
    theirs = AutoTokenizer.from_pretrained(str(run / "model"))
    assert read_twin(run / "model").config.vocab_size == config.model.vocab_size
    sentence = text.read_text(encoding="utf-8").splitlines()[0]
    assert theirs(sentence)["input_ids"][1:-1] == more.encode(sentence).ids.tolist()


def test_room_in_the_model_is_used_first(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = Tokenizer.load(write_twin(tmp_path / "first", "bert")).vocab_size
    twin = write_twin(tmp_path / "twin", "bert", vocab_size=size + 17)
    assert main(command(text, twin, tmp_path, "--extend-vocab", "16", "--private")) == 0
    assert "new tokens: " not in capsys.readouterr().out
    config, [folder] = load_run_config(tmp_path / "run", {}), (tmp_path / "data").iterdir()
    assert config.model.vocab_size == size + 17
    before = open_model(twin).model.encoder.embeddings.word.weight
    model = build_model(config, PreparedData(folder), load_initial(config))
    after = dict(model.named_parameters())[WORDS]
    assert torch.equal(after[:size], before[:size])
    assert not torch.isclose(after[size : size + 16], before[size : size + 16]).all(1).any()
    assert torch.equal(after[size + 16], before[size + 16])


def test_data_is_prepared_anew_for_another_number(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = write_twin(tmp_path / "twin", "bert")
    for number in ("8", "9"):
        again = command(text, twin, tmp_path, "--name", number, "--extend-vocab", number)
        assert main(again) == 0
    assert len(list((tmp_path / "data").iterdir())) == 2
    capsys.readouterr()
    assert main([*again, "--name", "again"]) == 0
    assert "already prepared from the same text" in capsys.readouterr().out
    for folder in (tmp_path / "data").iterdir():
        record = read_manifest(folder).source["tokenizer_extension"]
        assert main(["pretrain", str(folder), "--init-from", str(twin), "--print-config"]) == 0
        config = yaml.safe_load(capsys.readouterr().out)
        added = record["vocab_size"] - record["base_vocab_size"]
        assert config["tokenizer"]["extend_vocab"] == added
        assert config["model"]["vocab_size"] >= record["vocab_size"]


def test_mistakes(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = write_twin(tmp_path / "twin", "bert")
    assert main(["pretrain", str(text), "--extend-vocab", "8"]) == 2
    assert "tokenizer.extend_vocab = 8 needs a tokenizer to extend" in capsys.readouterr().err
    assert main(command(text, twin, tmp_path, "--extend-vocab", "100000")) == 2
    error = capsys.readouterr().err
    assert "TokenizerError: tokenizer.extend_vocab = 100000 is too large: the text" in error
    assert not (tmp_path / "run").exists()
    out = ["--out", str(tmp_path / "tokenizer"), "--tokenizer.path", str(twin)]
    assert main(["tokenizer", "train", str(text), *out]) == 2
    assert "tokenizer.path" in capsys.readouterr().err
    assert main(["tokenizer", "train", str(text), *out, "--tokenizer.extend_vocab", "8"]) == 0
    size = Tokenizer.load(twin).vocab_size
    assert Tokenizer.load(tmp_path / "tokenizer").vocab_size == size + 8
