"""Encoders without a head, as embedding models are stored: a new head, the same encoder."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

import maskwright
from maskwright.cli.main import main
from maskwright.errors import ModelFolderError
from maskwright.inference.embed import Embedder
from maskwright.model.masked_lm import BareEncoder
from maskwright.model_folder.folder import open_encoder, open_model
from maskwright.pretraining.init_from import load_initial
from maskwright.runs.config import resolve
from maskwright.runs.find_model import find_model_folder
from tests.hub_folders import TWINS, write_twin
from tests.pretraining.test_init_from import command


def write_headless(root: Path, model_type: str) -> tuple[Path, Path]:
    """Write a model with its head, and the same encoder as `AutoModel` saves it."""
    whole, bare = write_twin(root / "whole", model_type), write_twin(root / "bare", model_type)
    for path in bare.glob("*.safetensors"):
        path.unlink()
    AutoModel.from_pretrained(str(whole)).save_pretrained(bare)
    return whole, bare


@pytest.mark.parametrize("model_type", TWINS)
def test_the_encoder_is_the_same(
    model_type: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, bare = write_headless(tmp_path, model_type)
    expected = open_model(whole).model.encoder.state_dict()
    with pytest.raises(ModelFolderError, match="maskwright embed"):
        open_model(bare)
    loaded = open_encoder(bare)
    assert isinstance(loaded.model, BareEncoder)
    found = loaded.model.encoder.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    initial = load_initial(resolve("continue", None, {"init_from": str(bare)}))
    assert initial is not None
    encoder = initial.model.encoder.state_dict()
    assert all(torch.equal(encoder[name], expected[name]) for name in expected)
    assert "no head that predicts masked tokens" in capsys.readouterr().err


def test_a_model_of_sentence_transformers_is_continued(text: Path, tmp_path: Path) -> None:
    _, bare = write_headless(tmp_path, "bert")
    folder = tmp_path / "sentences"
    folder.mkdir()
    bare.rename(folder / "0_Transformer")
    modules = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": "Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert find_model_folder(folder) == folder / "0_Transformer"
    assert Embedder(find_model_folder(folder))(["The old cat eats fish."]).shape == (1, 32)
    assert main(command(text, folder, tmp_path)) == 0
    assert open_model(tmp_path / "run").model.config.hidden_size == 32
    modules[0]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert find_model_folder(folder) == folder


def test_vectors_are_evaluated_without_a_head(tmp_path: Path) -> None:
    whole, bare = write_headless(tmp_path, "bert")
    table = tmp_path / "pairs.csv"
    animals = ("horse", "cat", "bird", "fox")
    rows = [f"The {a} eats.,The {b} eats.,{int(a == b)}" for a in animals for b in animals]
    table.write_text("\n".join(["sentence1,sentence2,score", *rows]))
    [found, expected] = (
        maskwright.evaluate(folder, suite="sts", data=table) for folder in (bare, whole)
    )
    ([ours], [theirs]) = (each["suites"][0]["scores"] for each in (found, expected))
    assert ours["value"] == pytest.approx(theirs["value"], abs=0.01)  # vectors differ by rounding
    assert found["model"]["num_parameters"] < expected["model"]["num_parameters"]
