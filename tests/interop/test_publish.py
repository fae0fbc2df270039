import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from maskwright.errors import InputError, MissingPackageError, ModelFolderError
from maskwright.interop.publish import PublishResult, find_base_model, publish
from maskwright.model.config import Level
from maskwright.model_folder.model_card import split_card
from tests.interop.models import NATIVE, OWN, write_model
from tests.interop.receiving_hub import Hub
from tests.interop.test_classifier_source import write_classifier

NAMES = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


class RefusedError(Exception):
    """As the client raises them."""

    def __init__(self, status: int) -> None:
        super().__init__("no, for a\nreason")
        self.response = SimpleNamespace(status_code=status)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub.open)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder in which something else lies, too."""
    folder = write_model(tmp_path / "model", NATIVE["bert"], "# Larvae\n\nThey glow.")
    (folder / "optimizer.safetensors").write_bytes(b"moments")
    (folder / "export.json").write_text("{}")
    (folder / "data").mkdir()
    (folder / "data/secret.txt").write_text("mine")
    return folder


def plan(folder: Path, repo: str = "me/larvae", **options: Any) -> PublishResult:
    """Return what would be uploaded."""
    return publish(folder, repo, dry_run=True, **options)


def test_the_bytes_that_arrive_are_those_of_the_model(folder: Path, hub: Hub):
    url = publish(folder, "me/larvae", license="apache-2.0", language=["en", "no"]).url
    assert url == "https://hub.test/me/larvae"
    [(name, branch, message, files)] = hub.commits
    assert (name, branch) == ("me/larvae", None)
    assert message.startswith("Upload a model of maskwright 0.")
    assert files.keys() == NAMES
    for name in NAMES - {"README.md"}:
        assert files[name] == (folder / name).read_bytes()
    assert hub.repositories == {"me/larvae": False}
    assert hub.tokens == ["hf_secret"]
    metadata, body = split_card(files["README.md"].decode())
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["maskwright", "masked-language-model"],
        "license": "apache-2.0",
        "language": ["en", "no"],
    }
    own = split_card((folder / "README.md").read_text())[1]
    assert body == own.replace("path/to/this/folder", "me/larvae")
    assert 'from_pretrained("me/larvae")' in body
    assert "They glow." in body


def test_what_is_reported_is_what_arrives(folder: Path, hub: Hub):
    reported: list[str] = []
    result = plan(folder, report=reported.append)
    assert result.url is None
    assert hub.tokens == []
    publish(folder, "me/larvae")
    [(*_, files)] = hub.commits
    assert reported == result.describe()
    assert len(reported) == len(files)
    for name, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        assert any(
            line.startswith(name) and f" {len(content):,} " in line and line.endswith(digest)
            for line in reported
        )


def test_a_branch_a_message_and_a_private_repository(folder: Path, hub: Hub):
    published = publish(folder, "me/larvae", private=True, revision="v2", message="Brighter")
    assert published.url == "https://hub.test/me/larvae/tree/v2"
    assert hub.repositories == {"me/larvae": True}
    assert hub.branches == ["v2"]
    assert [commit[1:3] for commit in hub.commits] == [("v2", "Brighter")]


def test_no_library_finds_the_weights_of_an_older_model(folder: Path, hub: Hub):
    older = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    older += ["model.safetensors.index.json", "pytorch_model.bin", "special_tokens_map.json"]
    older += ["vocab.txt"]
    hub.stored = [".gitattributes", "LICENSE", "figures/model.safetensors", "notes.bin", *older]
    assert list(publish(folder, "me/larvae").removed) == hub.removed == sorted(older)


def test_what_was_to_be_private_is_not_put_into_a_public_repository(folder: Path, hub: Hub):
    hub.repositories["me/larvae"] = False
    with pytest.raises(InputError, match="--private: me/larvae exists on the hub and is public"):
        publish(folder, "me/larvae", private=True)
    assert hub.commits == []


def test_a_foreign_card_keeps_what_it_says(folder: Path):
    said = {"license": "mit", "pipeline_tag": "feature-extraction", "tags": ["larvae"]}
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(said)}---\n# Theirs\n")
    for base in ("a/b", "bert-base-uncased"):
        metadata, body = split_card(plan(folder, base_model=base).card)
        assert metadata == {"library_name": "transformers", "base_model": base, **said}
    assert body == "\n# Theirs\n"
    (folder / "README.md").unlink()
    assert "AutoModelForMaskedLM" in plan(folder).card


def test_an_own_architecture_is_not_said_to_be_of_transformers(tmp_path: Path):
    result = plan(write_model(tmp_path / "own", OWN))
    assert split_card(result.card)[0]["library_name"] == "maskwright"


def test_weights_in_parts_go_with_their_index(folder: Path):
    tensors = load_file(folder / "model.safetensors")
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    places = {tensor: names[number % 2] for number, tensor in enumerate(tensors)}
    for name in names:
        own = {tensor: value for tensor, value in tensors.items() if places[tensor] == name}
        save_file(own, folder / name, metadata={"format": "pt"})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()
    files = {path.name for path in plan(folder).files}
    assert files == NAMES - {"README.md", "model.safetensors"} | {index.name, *names}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "rejects the token; log in with: hf auth login"),
        (403, "has no write access to me"),
        (404, "the hub has no me/larvae"),
        (400, "no, for a reason"),
    ],
)
def test_what_the_hub_refuses_is_one_line(folder: Path, hub: Hub, status: int, said: str):
    hub.refusal = RefusedError(status)
    with pytest.raises(InputError, match=f"me/larvae is not published: .*{said}") as caught:
        publish(folder, "me/larvae")
    assert "\n" not in str(caught.value)
    assert hub.commits == []


def test_without_a_network_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(InputError, match=r"is not published: .*[Cc]onnection refused") as caught:
        publish(folder, "me/larvae")
    assert "hf_secret" not in str(caught.value)


def test_without_a_token_or_the_package_there_is_a_remedy(
    folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    constants: Any = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(InputError, match=r"no hub token to publish me/larvae: .*hf auth login"):
        publish(folder, "me/larvae")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"huggingface_hub, .*pip install .*\[hub\]'"):
        publish(folder, "me/larvae")
    assert hub.tokens == []


@pytest.mark.parametrize("repo", ["larvae", "me/lar/vae", "/home/me"])
def test_a_repository_has_an_owner_and_a_name(folder: Path, repo: str):
    with pytest.raises(InputError, match=r"--repo = .* must be OWNER/NAME"):
        plan(folder, repo)


def test_what_is_no_model_is_not_planned(folder: Path, tmp_path: Path):
    with pytest.raises(ModelFolderError, match="is not a folder"):
        plan(tmp_path / "nowhere")
    for damaged in ("---\nlicense: [mit\n---\n", "---\nlicense: mit\n", "---\n- mit\n---\n"):
        (folder / "README.md").write_text(damaged)
        with pytest.raises(ModelFolderError, match=r"README\.md cannot be published: its front"):
            plan(folder)
    (folder / "README.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFolderError, match=r"README\.md cannot be read"):
        plan(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"no model\.safetensors"):
        plan(folder)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path, name: str):
    elsewhere = tmp_path / "private"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(ModelFolderError, match=f"{name} is a link to {elsewhere}, which is not in"):
        plan(folder)


def test_links_within_the_folder_and_to_the_blobs_of_the_hub_are_followed(
    folder: Path, tmp_path: Path
):
    snapshots, blobs = tmp_path / "cache" / "snapshots", tmp_path / "cache" / "blobs"
    for made in (snapshots, blobs):
        made.mkdir(parents=True)
    folder = folder.rename(snapshots / "1234")
    (folder / "config.json").rename(folder / "real.json")
    (folder / "config.json").symlink_to("real.json")
    (folder / "README.md").rename(blobs / "abcd")
    (folder / "README.md").symlink_to("../../blobs/abcd")
    assert {path.name for path in plan(folder).files} == NAMES - {"README.md"}


def test_the_model_that_a_run_began_with_is_found(tmp_path: Path):
    config = tmp_path / "config.yaml"
    assert find_base_model(tmp_path) is None
    for source, found in (
        ("hf:google-bert/bert-base-uncased@main", "google-bert/bert-base-uncased"),
        ("hf:me/larvae", "me/larvae"),
        ("models/larvae", None),
        ("null", None),
    ):
        config.write_text(f"init_from: {source}\n")
        assert find_base_model(tmp_path) == found
    config.write_text("init_from: hf:me/larvae@main\n")
    write_model(tmp_path / "model", NATIVE["bert"])
    assert split_card(plan(tmp_path).card)[0]["base_model"] == "me/larvae"
    assert split_card(plan(tmp_path, base_model="me/other").card)[0]["base_model"] == "me/other"


@pytest.mark.parametrize("private", [True, False])
def test_a_private_run_is_told_to_be_one(tmp_path: Path, private: bool):
    (tmp_path / "config.yaml").write_text(f"private: {str(private).lower()}\n")
    write_model(tmp_path / "model", NATIVE["bert"])
    lines = list[str]()
    publish(tmp_path, "me/x", dry_run=True, report=lines.append)
    assert any("the run is private" in line for line in lines) == private


@pytest.mark.parametrize("level", ["text", "token"])
def test_a_classifier_is_published_as_one(level: Level, tmp_path: Path):
    folder = write_classifier(tmp_path / "model", NATIVE["bert"], level=level)
    own = plan(folder).card
    (folder / "README.md").unlink()
    for card in (own, plan(folder).card):
        metadata, body = split_card(card)
        assert metadata["pipeline_tag"] == f"{level}-classification"
        assert "odd" in body
