"""The examples in the docstrings of the public names run."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import maskwright
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.train.config import TrainConfig
from tests.workplace import data_of

# These run for minutes, for ever, or on the hub: their calls are compared with the signatures.
NOT_RUN = {"PretrainConfig", "experiment", "prepare", "pretrain", "publish", "serve", "sweep"}
NAMES = sorted(set(maskwright.__all__) - NOT_RUN)
TEXTS = ["snails eat leaves and the larvae eat snails"] * 3


def find_example(name: str) -> str:
    """Return the code of the first literal block of a docstring."""
    text = inspect.getdoc(getattr(maskwright, name)) or ""
    found = re.search(r"::\n\n((?:    .*\n|\n)+)", text + "\n")
    assert found, f"{name} has no example"
    return inspect.cleandoc("\n" + found[1])


@pytest.fixture(scope="module")
def folders(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with everything that the examples name."""
    root = tmp_path_factory.mktemp("examples")
    (root / "runs").mkdir()
    (root / "data").mkdir()
    for name in ("mine", "A", "B", "A-0", "A-1", "B-0", "B-1"):
        (root / "runs" / name).symlink_to(workplace / "runs" / "small")
    (root / "data" / "mine").symlink_to(data_of(workplace))
    sizes = ("small", "big")
    rows = [f"The {sizes[n % 2]} horse in the river eats grass {n},{n % 2}" for n in range(60)]
    (root / "mails.csv").write_text("\n".join(["body,folder", *rows]))
    (root / "reviews.txt").write_text("a fine film\na long one\n")
    (root / "sentences.txt").write_text("a fine film\na long one\n")
    (root / "blimp" / "data").mkdir(parents=True)
    pair = '{"sentence_good": "The cat sleeps.", "sentence_bad": "The cat sleep."}\n'
    (root / "blimp" / "data" / "agreement.jsonl").write_text(pair)
    tuned = maskwright.finetune(
        root / "runs" / "mine", task="classification", train=root / "mails.csv", epochs=1,
        columns={"sentence1": "body", "label": "folder"}, out=root / "runs" / "sst2",
        report=lambda line: None,
    )  # fmt: skip
    assert tuned.is_dir()
    return root


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str, folders: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folders)
    names = {public: getattr(maskwright, public) for public in maskwright.__all__}
    exec(find_example(name), {**names, "texts": TEXTS, "TokenizerConfig": TokenizerConfig})


@pytest.mark.parametrize("name", sorted(NOT_RUN))
def test_the_example_fits_the_signature(name: str):
    calls = [node for node in ast.walk(ast.parse(find_example(name))) if isinstance(node, ast.Call)]
    functions = {**vars(maskwright), "TrainConfig": TrainConfig}
    named = [call for call in calls if isinstance(call.func, ast.Name)]
    assert named
    for call in named:
        assert isinstance(call.func, ast.Name)
        function = functions.get(call.func.id) or getattr(maskwright, call.func.id)
        keywords = {str(keyword.arg): None for keyword in call.keywords}
        inspect.signature(function).bind(*call.args, **keywords)
