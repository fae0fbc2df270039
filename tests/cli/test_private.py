"""Text of the training data: in no file of a private run, and on no route without the token."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.interop.targets import TARGETS
from maskwright.model_folder.card import add_example
from maskwright.serving.pages import DOCS_PATHS
from tests.command import Cli
from tests.finetuning.helpers import write_nouns
from tests.serving.helpers import serve
from tests.workplace import SMALL, data_of

pytestmark = pytest.mark.usefixtures("drawn_charts")
# Pieces of a sentence of the corpus, of which one masked word leaves some.
CANARY = re.compile(
    r"(small|big|old|young) (horse|cat|bird|fox)|eats (grass|fish|seeds|berries)|every day"
    r"|(the|sees|and) (dog|cat|x-ray)"
)
OPEN = ("/", "/health", *DOCS_PATHS)
BUDGET = ["--train.max_steps", "20", "--train.num_validations", "2", "--train.report", "true"]


OTHER = "gguf"  # a target that does not take this encoder; it has the card of the others


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
):
    run = pretrain(workplace, tmp_path / "runs", "--private")
    assert (run / "report.html").is_file()
    assert main(["evaluate", str(run), "--fast", "--suite", "mlm"]) == 0
    told = capsys.readouterr()
    assert "tokenizer.json lists words" in told.out
    assert CANARY.search(told.out + told.err) is None
    assert find_canary(tmp_path) == []
    with serve(run / "model") as client:
        assert CANARY.search(client.get("/").text) is None


def test_only_log_and_report_of_a_run_show_its_text(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = pretrain(workplace, tmp_path)
    assert find_canary(run) == ["metrics.jsonl", "report.html"]
    [proposed] = [one for one in capsys.readouterr().out.splitlines() if "maskwright fill" in one]
    assert CANARY.search(proposed)  # a sentence, and not the frequent words of the card
    *_, prompt = shlex.split(proposed)
    assert main(["fill", str(run), prompt]) == 0


@pytest.fixture(scope="module")
def classifier(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of fine-tuning with mistakes to show, as it does not learn."""
    folder = tmp_path_factory.mktemp("classifier")
    train = str(write_nouns(folder / "train.tsv", 60))
    flags = ["--train", train, "--out", str(folder / "run"), "--epochs", "1"]
    model = str(workplace / "runs" / "small")
    flags += ["--task", "classification", "--learning_rate", "1e-9"]
    assert main(["finetune", model, *flags]) == 0
    return folder / "run"


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize(
    ("kind", "target"),
    [
        *(("masked", target) for target in TARGETS if target not in ("onnx", OTHER)),
        *(("classifier", target) for target in ("hf", "onnx-int8")),
    ],
)
def test_no_export_holds_text(
    kind: str, target: str, workplace: Path, classifier: Path, tmp_path: Path, cli: Cli
):
    run = classifier if kind == "classifier" else workplace / "runs" / "small"
    code, out, err = cli.run("export", run, "--to", target, "--out", tmp_path / "out")
    if "MissingPackageError" in err:
        pytest.skip(err)
    assert code == 0
    assert find_canary(tmp_path) == []
    assert CANARY.search(out + err) is None


@pytest.mark.parametrize(
    ("flag", "found"), [([], ["report.html"]), (["--private"], [])], ids=["default", "private"]
)
def test_a_report_on_data_is_private_if_asked(
    flag: list[str], found: list[str], workplace: Path, tmp_path: Path
):
    out = data_of(workplace)
    copy = tmp_path / "data"
    shutil.copytree(out, copy)
    text = str(workplace / "animals.txt")
    small = [*SMALL[: SMALL.index("--data.max_seq_length")], "--report", *flag]
    assert main(["prepare", text, "--out", str(copy), *small]) == 0
    page = (copy / "report.html").read_text("utf-8")
    assert str(workplace) not in page
    assert "animals.txt" in page
    assert [name for name in find_canary(copy) if name == "report.html"] == found


@pytest.mark.parametrize("path", OPEN)
def test_no_route_without_the_token_shows_the_example(workplace: Path, tmp_path: Path, path: str):
    folder = tmp_path / "model"
    shutil.copytree(workplace / "runs" / "small" / "model", folder)
    assert find_canary(folder) == []
    card = add_example((folder / "README.md").read_text("utf-8"), ["the dog eats [MASK]"])
    (folder / "README.md").write_text(card, encoding="utf-8")
    with serve(folder, token="secret") as client:
        answer = client.get(path)
        assert answer.status_code == 200
        assert CANARY.search(answer.text) is None


def test_only_report_and_predictions_of_fine_tuning_show_texts(
    workplace: Path, classifier: Path, tmp_path: Path
):
    assert find_canary(classifier) == ["predictions.csv", "report.html"]
    train = str(write_nouns(tmp_path / "train.tsv", 60))
    flags = ["--train", train, "--out", str(tmp_path / "run"), "--epochs", "1", "--private"]
    model = str(workplace / "runs" / "small")
    assert main(["finetune", model, "--task", "classification", *flags]) == 0
    assert find_canary(tmp_path / "run") == []


def test_a_run_stays_as_private_as_it_began(workplace: Path, cli: Cli):
    """Its log holds the samples that it has written."""
    assert "private" in cli.refuse(
        "pretrain", "--resume", workplace / "runs" / "small", "--private"
    )
