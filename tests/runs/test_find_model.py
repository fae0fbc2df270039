"""Models from the hub, against a hub of our own."""

import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from huggingface_hub import constants

from maskwright.cli.main import main
from maskwright.errors import InputError, MissingPackageError, ModelFolderError
from maskwright.model_folder.folder import load_model, save_model
from maskwright.runs.download_model import download_model
from maskwright.runs.find_model import find_model_folder
from tests.model_folder.helpers import tiny_tokenizer
from tests.models import small_model
from tests.runs.hub import Hub


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
        "hf:me/tiny@v9": "the model has no revision v9",
        "hf:me/secret": "accept its terms on https://huggingface.co/me/secret and log in",
        "hf:me/broken": "the hub does not answer",
        "hf:": "'' is not a model's name; write hf:OWNER/NAME",
        "hf:a/b/c": "'a/b/c' is not a model's name; write hf:OWNER/NAME",
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


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'maskwright\[hub\]'"):
        download_model("hf:me/tiny")


def test_fill_takes_a_name(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", "hf:me/tiny", "the [MASK] sat", "--json"]) == 0
    assert '"masks"' in capsys.readouterr().out
    assert main(["fill", "hf:me/none", "the [MASK] sat"]) == 2
    assert capsys.readouterr().err.startswith("InputError: hf:me/none: there is no such model")
