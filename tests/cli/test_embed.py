"""`maskwright embed` through the command line: what is in its files, and what it refuses."""

import sys
from pathlib import Path

import numpy as np
import pytest

from maskwright.cli.main import main
from maskwright.extras import how_to_install
from maskwright.inference.embed import Embedder
from tests.command import Cli

LINES = ["The small horse eats grass.", "", "A bird", "the cat " * 40]


def refuse(cli: Cli, *words: object) -> str:
    """Return the only line of a call that fails, which prints nothing else."""
    code, out, err = cli.run("embed", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    return err.strip()


@pytest.fixture
def run(workplace: Path) -> str:
    return str(workplace / "runs" / "small")


@pytest.fixture
def texts(tmp_path: Path) -> str:
    (tmp_path / "texts.txt").write_text("\n".join([*LINES, ""]), encoding="utf-8")
    return str(tmp_path / "texts.txt")


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--pooling", "cls"], {"pooling": "cls"}),
        (["--no-normalize", "--batch-tokens", "8", "--device", "cpu"], {"normalize": False}),
    ],
)
def test_every_line_is_a_row(
    run: str,
    texts: str,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    options: dict,
):
    monkeypatch.setattr("maskwright.inference.text_model._MAX_TEXTS", 3)
    out = tmp_path / "vectors.npy"
    summary, cut = cli("embed", run, "--file", texts, "--out", out, *flags).splitlines()
    assert summary.startswith(f"{out}: 4 texts · 32 wide · ")
    assert summary.endswith(" texts/s")
    assert cut.startswith("1 of 4 texts (25.0%) cut: only the first 32 tokens")
    vectors = np.load(out)
    assert (vectors.dtype, vectors.shape, vectors.flags.c_contiguous) == (np.float32, (4, 32), True)
    embed = Embedder(Path(run) / "model", **options)
    batch_tokens = 8 if "--batch-tokens" in flags else None
    blocks = (LINES[:3], LINES[3:])
    expected = np.concatenate([embed(block, batch_tokens) for block in blocks])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_parquet_holds_texts_and_vectors(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("maskwright.inference.text_model._MAX_TEXTS", 2)
    given = [*LINES, "bytes \udcff"]
    assert main(["embed", run, *given, "--out", str(tmp_path / "v.parquet")]) == 0
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["text", "embedding"]
    assert str(table.schema.field("embedding").type).startswith("fixed_size_list<")
    assert table["text"].to_pylist() == [*LINES, "bytes ?"]
    expected = Embedder(Path(run) / "model")(given)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v.csv", "must end in .npy or .parquet"),
        ("nowhere/v.npy", "its folder does not exist"),
        ("folder.npy", "is a folder. Name a file in it"),
        ("old.npy", "exists already. Choose another file, or remove it."),
    ],
)
def test_a_place_that_cannot_be_written(
    run: str, texts: str, tmp_path: Path, cli: Cli, name: str, message: str
):
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "old.npy").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    error = refuse(cli, run, "--file", texts, "--out", tmp_path / name)
    assert error.startswith(f"InputError: --out = {tmp_path / name}")
    assert message in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "the following arguments are required: --out"),
        (["a", "--out", "v.npy", "--pooling", "max"], "--pooling: invalid choice: 'max'"),
        (["a", "--out", "v.npy", "--batch-tokens", "0"], "--batch-tokens = 0 must be at least 1"),
        (["--file", "nowhere.txt", "--out", "v.npy"], "nowhere.txt cannot be read"),
        (["a", "--out", "v.npy", "--device", "gpu"], "device = gpu is not a device here"),
    ],
)
def test_what_cannot_be_embedded(
    run: str,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
):
    monkeypatch.chdir(tmp_path)
    assert message in refuse(cli, Path(run).resolve(), *arguments)
    assert not (tmp_path / "v.npy").exists()


def test_no_texts_and_no_model(tmp_path: Path, cli: Cli, run: str):
    out = str(tmp_path / "v.npy")
    (tmp_path / "empty.txt").touch()
    error = refuse(cli, run, "--file", tmp_path / "empty.txt", "--out", out)
    assert error == "InputError: there is no text to embed"
    assert refuse(cli, tmp_path / "no", "a", "--out", out).startswith("ModelFolderError")


def test_a_failure_leaves_nothing(
    run: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("maskwright.inference.text_model._MAX_TEXTS", 50)
    # So long that the bad byte is met after the first texts are written.
    (tmp_path / "texts.txt").write_bytes(b"the cat eats fish \n" * 1000 + b"caf\xe9\n")
    for name in ("v.npy", "v.parquet"):
        arguments = ["--file", str(tmp_path / "texts.txt"), "--out", str(tmp_path / name)]
        assert "texts.txt:1001 is not UTF-8" in refuse(cli, run, *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_parquet_without_its_package(
    run: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = refuse(cli, run, "a", "--out", tmp_path / "v.parquet")
    assert error.startswith("MissingPackageError: --out *.parquet needs the package pyarrow")
    assert error.endswith(how_to_install("parquet"))
