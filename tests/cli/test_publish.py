from pathlib import Path
from typing import Any

import pytest

from maskwright.cli.main import main
from tests.interop.receiving_hub import ReceivingHub


@pytest.fixture
def publish(workplace: Path) -> list[str]:
    return ["publish", str(workplace / "runs/small"), "--repo", "me/animals"]


def test_a_dry_run_shows_files_and_card_and_asks_no_network(
    publish: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    capsys.readouterr()
    assert main([*publish, "--dry-run", "--license", "cc0-1.0", "--language", "en,ko"]) == 0
    said = capsys.readouterr().out
    above, _, card = said.partition("\n---\n")
    assert [line.split()[0] for line in above.strip().splitlines()] == [
        *("README.md", "config.json", "tokenizer.json", "tokenizer_config.json"),
        "model.safetensors",
    ]
    assert "license: cc0-1.0\nlanguage:\n- en\n- ko\n" in card
    assert "\nNothing was uploaded. " in card


def test_what_is_on_the_hub_is_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "hf:me/animals", "--repo", "me/other"]) == 2
    assert "hf:me/animals is already on the hub" in capsys.readouterr().err


def test_the_card_says_how_the_model_came_about_and_not_where(
    publish: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([*publish, "--dry-run"]) == 0
    card = capsys.readouterr().out
    for part in ("unigram baseline", "Seed 0, 150 steps", "torch 2", "`animals.txt`", "- animals"):
        assert part in card
    assert str(workplace) not in card


def test_a_run_is_published(
    publish: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    constants: Any = pytest.importorskip("huggingface_hub.constants")
    with ReceivingHub().serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        capsys.readouterr()
        assert main([*publish, "--private", "--revision", "v1", "--message", "First"]) == 0
        said = capsys.readouterr().out
    assert f"published: {hub.address}/me/animals/tree/v1" in said
    [(name, branch, message, files)] = hub.commits
    assert (name, branch, message, len(files)) == ("me/animals", "v1", "First", 5)
    assert hub.repositories == {"me/animals": True}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--repo", "me/animals"], "ModelFolderError: nowhere is not a folder"),
        (["RUN", "--repo", "animals"], "InputError: --repo = animals must be OWNER/NAME"),
        (["RUN"], "the following arguments are required: --repo"),
        (["RUN", "--repo", "me/animals", "--licence", "mit"], "did you mean --license?"),
    ],
)
def test_what_cannot_be_published_is_one_line(
    workplace: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(workplace / "runs/small")
    capsys.readouterr()
    assert main(["publish", *(run if part == "RUN" else part for part in arguments)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
