"""`--file` is read alike by `fill`, `score`, `embed` and `predict`: each line has its row."""

import gzip
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import maskwright
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import save_model
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded

TEXTS = ["the [MASK]", "", "cat sees [MASK]", "  ", "[MASK] dog"]
TABLES = ("t.jsonl", "t.ndjson", "t.json", "t.csv", "t.tsv", "t.parquet", "t.jsonl.gz", "t.csv.gz")
COMMANDS = ("fill", "score", "embed", "predict")
Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, loaded = tmp_path_factory.mktemp("models"), make_loaded()
    save_model(folder / "encoder", loaded.model, TOKENIZER)
    model = build_classifier(loaded.model, FinetuneConfig(), "text", 2, seed=0)
    problem = "single_label_classification"
    save_classifier(folder / "classifier", model, TOKENIZER, ("a", "b"), problem, num_texts=1)
    return {
        one: str(folder / ("classifier" if one == "predict" else "encoder")) for one in COMMANDS
    }


@pytest.fixture
def run(folders: dict[str, str], tmp_path: Path, cli: Cli) -> Run:
    """A command on a file: its exit code, a text or nothing for each row, and its errors."""

    def run(command: str, *arguments: str) -> tuple[int, list[str], str]:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        flags = ["--out", str(out)] if command == "embed" else ["--json"]
        whole = (command, folders[command], "--device", "cpu", *arguments, *flags)
        code, said, error = cli.run(*whole)
        if code:
            return code, [], error
        if command == "embed":
            parquet = pytest.importorskip("pyarrow.parquet")
            table = parquet.read_table(out)
            assert np.isfinite(np.array(table["embedding"].to_pylist())).all()
            return code, table["text"].to_pylist(), error
        rows = [json.loads(line) for line in said.splitlines()]
        if command == "score":  # the line of the corpus
            error = re.sub(r"pseudo-perplexity .*\n$", "", error)
        assert [is_empty(row) for row in rows] == [not text_of(row).strip() for row in rows]
        return code, list(map(text_of, rows)), error

    return run


def text_of(row: dict) -> str:
    return row["text"] if "text" in row else row["texts"][0]


def is_empty(row: dict) -> bool:
    """Whether there is no answer."""
    return not (row["masks"] if "masks" in row else row.get("score") is not None)


def write(path: Path, texts: list[str], field: str = "text", missing: object = "") -> str:
    rows = [{"id": number, field: text or missing} for number, text in enumerate(texts)]
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
        return str(path)
    mark = "\t" if ".tsv" in path.name else ","
    lines = [f"id{mark}{field}", *(f"{number}{mark}{text}" for number, text in enumerate(texts))]
    lines = list(map(json.dumps, rows)) if ".csv" not in path.name and mark == "," else lines
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_line_has_its_row(command: str, run: Run, tmp_path: Path):
    plain = "\n".join(TEXTS).encode()
    contents = {
        "a.txt": plain + b"\n",
        "no_end.txt": plain,
        "no_suffix": plain,
        "windows.txt": "\r\n".join(TEXTS).encode("utf-8-sig"),
        "old_mac.txt": "\r".join(TEXTS).encode(),
        "a.txt.gz": gzip.compress(plain),
        "wide.txt": "\n".join(TEXTS).encode("utf-16"),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert run(command, "--file", str(tmp_path / name)) == (0, TEXTS, ""), name


@pytest.mark.parametrize("command", COMMANDS)
def test_each_row_of_a_table_has_its_row(command: str, run: Run, tmp_path: Path):
    for name in TABLES:
        for missing in ("", None) if "csv" not in name and "tsv" not in name else ("",):
            file = write(tmp_path / name, TEXTS, missing=missing)
            assert run(command, "--file", file) == (0, TEXTS, ""), name
        file = write(tmp_path / f"other_{name}", TEXTS, field="x1")
        code, _, error = run(command, "--file", file)
        assert (code, len(error.splitlines())) == (2, 1), name
        assert run(command, "--file", file, "--columns", "sentence1=x1") == (0, TEXTS, ""), name


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.txt", "lines"])
def test_one_argument_that_is_a_file_is_read(command: str, name: str, run: Run, tmp_path: Path):
    if name in ("t.txt", "lines"):
        path = str(tmp_path / name)
        Path(path).write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    else:
        path = write(tmp_path / name, TEXTS)
    assert run(command, path) == run(command, "--file", path)
    code, rows, error = run(command, str(tmp_path / "missing.csv"))
    assert (code, rows) == (2, [])
    assert "does not exist" in error


def test_python_reads_the_file_that_the_command_reads(folders: dict[str, str], tmp_path: Path):
    path = write(tmp_path / "t.csv", ["the cat", "sees a dog"])
    for given in (path, Path(path), [path], ["the cat", "sees a dog"]):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        result = maskwright.embed(folders["embed"], given, out=out, device="cpu")
        assert result.num_texts == 2
        [found] = maskwright.search(folders["embed"], "the cat", given, device="cpu")
        assert [match.number for match in found] == [1, 2]
        answers = maskwright.predict(folders["predict"], given, device="cpu")
        assert [one.texts for one in answers] == [("the cat",), ("sees a dog",)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_column_is_given_by_its_position(command: str, run: Run, tmp_path: Path):
    (tmp_path / "t.csv").write_text("1,the [MASK]\n2,a [MASK]\n")
    arguments = ("--file", str(tmp_path / "t.csv"), "--columns", "sentence1=1")
    assert run(command, *arguments) == (0, ["the [MASK]", "a [MASK]"], "")
    assert run(command, *arguments, "--header") == (0, ["a [MASK]"], "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_read(command: str, run: Run, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("the [MASK]\n\n[MASK] cat\n"))
    writer.start()
    assert run(command, "--file", str(pipe)) == (0, ["the [MASK]", "", "[MASK] cat"], "")
    writer.join()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--file", "none.txt"], "none.txt cannot be read: No such file or directory."),
        (["--file", "."], ". cannot be read: Is a directory."),
        (["--file", "none.csv"], "none.csv"),
        (["--file", "bad.txt"], "bad.txt:2 is not UTF-8"),
        (["--file", "blank.txt", "--columns", "sentence1=x"], "--columns"),
        (["a [MASK]", "--header"], "--header require"),
        (["a [MASK]", "--file", "bad.txt"], "--file"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    command: str,
    arguments: list[str],
    message: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_bytes(b"the [MASK]\ncaf\xe9\n")
    Path("blank.txt").write_text("\n \n")
    code, _, error = run(command, *arguments)
    assert (code, len(error.splitlines())) == (2, 1)
    assert message in error
