"""Models from the hub, against a hub of our own; folders of sentence-transformers."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from huggingface_hub import constants

from maskwright.cli.main import main
from maskwright.errors import InputError, ModelFolderError
from maskwright.model_folder.folder import load_model, save_model
from maskwright.model_folder.sentence_modules import find_pooling
from maskwright.runs.find_model import download_model, find_model_folder
from tests.model_folder.helpers import tiny_tokenizer
from tests.models import small_model
from tests.runs.hub import Hub, write_modules

CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Hub]:
    """A hub with the model ``me/tiny``, and a cache of its own."""
    folder = tmp_path / "tiny"
    save_model(folder, small_model(), tiny_tokenizer(tmp_path / "tokenizer"))
    for name in ("pytorch_model.bin", "modeling_tiny.py", "onnx/model.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not for us")
    hub = Hub()
    hub.models["me/tiny"] = folder
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with hub.serving() as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield hub


def test_a_model_comes_and_nothing_else_does(hub: Hub) -> None:
    folder = find_model_folder("hf:me/tiny")
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == expected == set(hub.fetched)
    assert load_model(folder)[0].config.vocab_size == 64
    assert find_model_folder("hf:me/tiny@main") == folder
    assert len(hub.fetched) == len(expected)  # the second time it is in the cache


def test_without_a_network_the_cache_serves(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = download_model("hf:me/tiny")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert download_model("hf:me/tiny") == folder
    with pytest.raises(InputError, match="hf:me/other: the hub does not answer, and the cache"):
        download_model("hf:me/other")


def test_a_part_of_a_model_in_the_cache_is_no_model(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = download_model("hf:me/tiny")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match="the hub does not answer, and the cache does not hold the whole model"
    ):
        download_model("hf:me/tiny")


def test_what_cannot_be_had(hub: Hub) -> None:
    hub.refused = {"me/secret": (403, "GatedRepo"), "me/broken": (500, "Internal")}
    for name, message in {
        "hf:me/none": "there is no such model on the hub; if it is private, log in",
        "hf:me/tiny@v9": "no such revision or name",
        "hf:me/secret": "accept its terms on https://huggingface.co/me/secret and log in",
        "hf:me/broken": "the hub does not answer",
        "hf:a/b/c": "write hf:OWNER/NAME",
    }.items():
        with pytest.raises(InputError) as caught:
            download_model(name)
        assert message in str(caught.value)
        assert str(caught.value).startswith(f"{name}: ")


def test_pickles_stay_where_they_are(hub: Hub) -> None:
    (hub.models["me/tiny"] / "model.safetensors").unlink()
    with pytest.raises(ModelFolderError, match="holds no weights in safetensors; pickles"):
        download_model("hf:me/tiny")
    assert "pytorch_model.bin" not in hub.fetched


@pytest.mark.parametrize(
    ("name", "is_hinted"),
    [("bert-base-uncased", True), ("answerdotai/ModernBERT-base", True), ("a/b/c", False)],
)
def test_a_name_of_the_hub_needs_its_prefix(
    name: str, is_hinted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFolderError, match="is not a folder") as caught:
        find_model_folder(name)
    assert (f"hf:{name}" in str(caught.value)) == is_hinted


def test_fill_takes_a_name(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", "hf:me/tiny", "the [MASK] sat", "--json"]) == 0
    assert '"masks"' in capsys.readouterr().out
    assert main(["fill", "hf:me/none", "the [MASK] sat"]) == 2
    assert capsys.readouterr().err.startswith("InputError: hf:me/none: there is no such model")


def test_the_pooling_comes_with_the_model(hub: Hub) -> None:
    write_modules(hub.models["me/tiny"], CLS, "Normalize")
    folder = find_model_folder("hf:me/tiny")
    assert find_pooling(folder) == "cls"
    assert {"modules.json", "1_Pooling/config.json"} < set(hub.fetched)
    assert "onnx/model.safetensors" not in hub.fetched


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (CLS, "cls"),
        ({"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}, "mean"),
        ({"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"pooling_mode": "cls", "pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode_mean_tokens": False}, "mean"),
        ({}, "mean"),
    ],
)
def test_the_pooling_of_sentence_transformers(
    pooling: object, expected: str, tmp_path: Path
) -> None:
    assert find_pooling(tmp_path) == "mean"
    write_modules(tmp_path, pooling)
    assert find_pooling(tmp_path) == expected
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert find_pooling(find_model_folder(tmp_path)) == expected


@pytest.mark.parametrize(
    ("pooling", "others", "named"),
    [
        ({"pooling_mode": "max"}, (), "max"),
        ({"pooling_mode": ["cls", "mean"]}, (), "cls"),
        ({**CLS, "pooling_mode_max_tokens": True}, (), "cls, max"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, (), "mean_sqrt_len"),
        ({"pooling_mode_lasttoken": True}, (), "lasttoken"),
        (CLS, ("Normalize", "Dense"), "Dense"),
    ],
)
def test_vectors_that_would_be_others_are_refused(
    pooling: object, others: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    write_modules(tmp_path, pooling, *others)
    with pytest.raises(ModelFolderError, match="--pooling mean") as caught:
        find_pooling(tmp_path)
    assert named in str(caught.value)
    assert ("modules.json" in str(caught.value)) == bool(others)


@pytest.mark.parametrize("text", ["{", "[1]", "5", "[{}]", '[{"type": "a.Transformer"}]'])
def test_damaged_modules_are_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "modules.json").write_text(text)
    for find in (find_model_folder, find_pooling):
        with pytest.raises(ModelFolderError, match=r"modules\.json"):
            find(tmp_path)
    assert main(["fill", str(tmp_path), "the [MASK]"]) == 2
    assert "modules.json" in capsys.readouterr().err


@pytest.mark.parametrize("pooling", [[], "cls"])
def test_a_damaged_pooling_is_one_line(pooling: object, tmp_path: Path) -> None:
    write_modules(tmp_path, pooling)
    with pytest.raises(ModelFolderError, match=r"1_Pooling/config\.json"):
        find_pooling(tmp_path)
    (tmp_path / "1_Pooling/config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"1_Pooling/config\.json"):
        find_pooling(tmp_path)
