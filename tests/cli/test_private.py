"""Text of the training data: in no file of a private run, and on no route without the token."""

import re
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.serving.pages import DOCS_PATHS
from tests.finetuning.helpers import write_nouns
from tests.serving.helpers import serve
from tests.workplace import SMALL, data_of

# Pieces of a sentence of the corpus, of which one masked word leaves some.
CANARY = re.compile(
    r"(small|big|old|young) (horse|cat|bird|fox)|eats (grass|fish|seeds|berries)|every day"
    r"|(the|sees|and) (dog|cat|x-ray)"
)
OPEN = ("/", "/health", *DOCS_PATHS)
BUDGET = ["--train.max_steps", "20", "--train.num_validations", "2", "--train.report", "true"]


def find_canary(folder: Path) -> list[str]:
    """Return the files of a folder that hold text of the data."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    contents = {path: path.read_bytes().decode("utf-8", "replace") for path in files}
    return [str(path.relative_to(folder)) for path, text in contents.items() if CANARY.search(text)]


def pretrain(workplace: Path, runs: Path, *flags: str) -> Path:
    names = ["--runs-dir", str(runs), "--name", "run"]
    assert main(["pretrain", str(data_of(workplace)), *names, *SMALL, *BUDGET, *flags]) == 0
    return runs / "run"


def test_no_file_of_a_private_run_holds_its_text(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pretrain(workplace, tmp_path / "runs", "--private")
    assert (run / "report.html").is_file()
    assert main(["export", str(run), "--to", "hf", "--out", str(tmp_path / "export")]) == 0
    told = capsys.readouterr()
    assert CANARY.search(told.out + told.err) is None
    assert "widget" not in told.err
    assert find_canary(tmp_path) == []
    with serve(run / "model") as client:
        assert CANARY.search(client.get("/").text) is None


def test_a_model_card_without_example_leaves_the_samples_in_the_log(
    workplace: Path, tmp_path: Path
) -> None:
    run = pretrain(workplace, tmp_path, "--no-example")
    assert find_canary(run) == ["metrics.jsonl", "report.html"]


@pytest.mark.parametrize("path", OPEN)
def test_no_route_without_the_token_shows_the_example(workplace: Path, path: str) -> None:
    folder = workplace / "runs" / "small" / "model"
    assert find_canary(folder) == ["README.md"]
    with serve(folder, token="secret") as client:
        answer = client.get(path)
        assert answer.status_code == 200
        assert CANARY.search(answer.text) is None


def test_export_and_publish_warn_of_an_example(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(workplace / "runs" / "small")
    assert main(["export", run, "--to", "hf", "--out", str(tmp_path / "out")]) == 0
    assert "widget" in capsys.readouterr().err
    assert main(["publish", run, "--repo", "me/mine", "--dry-run"]) == 0
    assert "warning: README.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "found"),
    [("--private", []), ("--no-example", ["predictions.csv", "report.html"])],
)
def test_fine_tuning_keeps_no_text_if_private(
    flag: str, found: list[str], workplace: Path, tmp_path: Path
) -> None:
    train = write_nouns(tmp_path / "train.tsv", 60)
    model = str(workplace / "runs" / "small")
    flags = ["--train", str(train), "--out", str(tmp_path / "run"), "--epochs", "1"]
    flags += ["--learning_rate", "1e-9", flag]  # so that there are mistakes to show
    assert main(["finetune", model, "--task", "classification", *flags]) == 0
    assert find_canary(tmp_path / "run") == found


def test_a_run_stays_as_private_as_it_began(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its log holds the samples that it has written."""
    assert main(["pretrain", "--resume", str(workplace / "runs" / "small"), "--private"]) == 2
    assert "private" in capsys.readouterr().err
