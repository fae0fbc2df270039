"""Text of the training data: in no file of a private run, and on no route without the token."""

import random
import re
import shlex
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.interop.targets import TARGETS
from maskwright.model_folder.model_card import add_example
from maskwright.serving.pages import DOCS_PATHS
from maskwright.sweeping import run as sweep_run
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


# Invented words, so that one of them anywhere is one of the text; the text has no others.
INVENTED = ["zorvik", "plendor", "quastem", "brimolu", "fraxid", "snevart", "glompit", "dwelkin"]
INVENTED_WORD = re.compile("|".join(INVENTED), re.IGNORECASE)
VOCABULARIES = ("tokenizer.json", "vocab.txt")  # which list words, as the documentation says


def find_invented(folder: Path) -> list[str]:
    """Return the files below a folder that hold an invented word, also in binary form."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    held = [path for path in files if INVENTED_WORD.search(path.read_bytes().decode("latin-1"))]
    return [str(path.relative_to(folder)) for path in held if path.name not in VOCABULARIES]


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and labeled examples of invented words."""
    root, draw = tmp_path_factory.mktemp("secret"), random.Random(0)
    sentences = [" ".join(draw.choices(INVENTED, k=7)).capitalize() + "." for _ in range(900)]
    documents = ["\n".join(sentences[n : n + 3]) for n in range(0, 900, 3)]
    (root / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    rows = [f"{'AB'[n % 2]}\t{sentence}" for n, sentence in enumerate(sentences[:60])]
    (root / "train.tsv").write_text("label\ttext\n" + "\n".join(rows), encoding="utf-8")
    return root


class Ways:
    """Commands on the invented words, which write below `out`; what they print is kept."""

    def __init__(self, secret: Path, out: Path, cli: Cli) -> None:
        self.secret, self.out, self.cli, self.printed = secret, out, cli, ""

    def __call__(self, *words: object) -> None:
        code, out, err = self.cli.run(*words)
        assert code == 0, err
        self.printed += out + err

    def pretrain(self, *flags: object) -> Path:
        data = ["--data-dir", self.secret / "data", "--runs-dir", self.out, "--name", "run"]
        self("pretrain", self.secret / "text.txt", *data, *SMALL, *BUDGET, *flags)
        return self.out / "run"

    def finetune(self, model: Path, *flags: object) -> Path:
        train = ["--train", self.secret / "train.tsv", "--task", "classification", "--epochs", "1"]
        self("finetune", model, *train, "--out", self.out / "labels", *flags)
        return self.out / "labels"


def test_no_word_of_a_private_text_is_written_or_printed(
    secret: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    """docs/data.md: "`pretrain --private` and `finetune --private` write no word of the text to
    the run, its exports, the log of a sweep and the terminal".
    """

    def run_here(command: Sequence[str], log: Path) -> tuple[int, None]:
        code, out, err = cli.run(*command[3:])
        log.write_text(out + err)
        return code, None

    monkeypatch.setattr(sweep_run, "run_process", run_here)
    ways = Ways(secret, tmp_path, cli)
    run = ways.pretrain("--private")
    ways("report", run)
    labels = ways.finetune(run, "--private")
    for model in (run, labels):
        ways("publish", model, "--repo", "me/x", "--dry-run")
        ways("export", model, "--to", "hf", "--out", tmp_path / f"hf-{model.name}")
    ways("export", run, "--to", "sentence-transformers", "--out", tmp_path / "st")
    ways("evaluate", run, "--suite", "mlm", "--fast", "--details")
    data = ["--data", secret / "train.tsv"]
    ways("evaluate", labels, "--suite", "labels", *data, "--out", tmp_path / "scores.json")
    if find_spec("optuna"):
        text = [secret / "text.txt", "--data-dir", secret / "data", *SMALL, *BUDGET, "--private"]
        examples = [run, "--train", secret / "train.tsv", "--task", "classification", "--private"]
        for command, arguments in (("pretrain", text), ("finetune", examples)):
            field = {"pretrain": "masking.rate=0.2..0.3", "finetune": "epochs=1..2"}[command]
            where = ["--out", tmp_path / f"sweep-{command}", "--trials", "1", "--over", field]
            ways("sweep", command, *where, *arguments)
    assert find_invented(tmp_path) == []
    assert INVENTED_WORD.search(ways.printed) is None


def test_without_the_flag_the_words_are_found(secret: Path, tmp_path: Path, cli: Cli):
    """The test above would see them."""
    ways = Ways(secret, tmp_path, cli)
    run = ways.pretrain()
    ways.finetune(run)
    expected = {"metrics.jsonl", "report.html", "README.md", "predictions.csv"}
    assert expected <= {Path(name).name for name in find_invented(tmp_path)}
    assert INVENTED_WORD.search(ways.printed)
