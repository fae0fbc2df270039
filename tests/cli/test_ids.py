"""Ids of records and rows come back with vectors, scores, guesses and predictions."""

import json
from pathlib import Path

import numpy as np
import pytest

from maskwright.errors import InputError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.inference.embed import embed
from maskwright.model_folder.classifier_folder import save_classifier
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded

NAMES = ["sp|P1", "p2", "p3"]
TEXTS = ["THE CAT", "A BIRD", "GRASS"]


@pytest.fixture
def run(workplace: Path) -> str:
    return str(workplace / "runs" / "small")


@pytest.fixture(params=["x.fasta", "x.fastq", "x.smi", "x.csv", "x.jsonl"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of three records with ids."""
    letters = [text.replace(" ", "") for text in TEXTS]
    rows = [*zip(NAMES, letters, strict=True)]
    made = {
        "x.fasta": "".join(f">{name} x\n{text}\n" for name, text in rows),
        "x.fastq": "".join(f"@{name} x\n{text}\n+\n{text}\n" for name, text in rows),
        "x.smi": "".join(f"{text} {name}\n" for name, text in rows),
        "x.csv": "id,text\n" + "".join(f"{name},{text}\n" for name, text in rows),
        "x.jsonl": "".join(json.dumps({"text": t, "id": name}) + "\n" for name, t in rows),
    }
    path = tmp_path / str(request.param)
    path.write_text(made[path.name])
    return path


def test_ids_come_back(run: str, named: Path, cli: Cli, tmp_path: Path):
    rows = [json.loads(line) for line in cli("score", run, "--file", named, "--json").splitlines()]
    assert [row["id"] for row in rows] == NAMES
    assert [row["text"] for row in rows] == [text.replace(" ", "") for text in TEXTS]
    shown = cli("score", run, "--file", named).splitlines()
    assert all(name in line for name, line in zip(NAMES, shown, strict=False))
    cli("embed", run, "--file", named, "--out", tmp_path / "v.npy")
    assert (tmp_path / "v.ids.txt").read_text().splitlines() == NAMES
    assert len(np.load(tmp_path / "v.npy")) == len(NAMES)


def test_ids_are_a_column_of_parquet(run: str, named: Path, cli: Cli, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    cli("embed", run, "--file", named, "--out", tmp_path / "v.parquet")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table.column_names == ["id", "text", "embedding"]
    assert table["id"].to_pylist() == NAMES


def test_ids_come_back_with_texts_that_search_finds(run: str, named: Path, cli: Cli):
    found = json.loads(cli("search", run, "A bird", "--file", named, "--json"))
    assert {one["number"]: one["id"] for one in found["matches"]} == dict(enumerate(NAMES, 1))
    shown = cli("search", run, "A bird", "--file", named)
    for name, text in zip(NAMES, TEXTS, strict=True):
        assert f"{name} {text.replace(' ', '')}" in shown


def test_ids_come_back_with_predictions(cli: Cli, tmp_path: Path):
    run, problem = tmp_path / "model", "single_label_classification"
    model = build_classifier(make_loaded().model, FinetuneConfig(), "text", 2, seed=0)
    save_classifier(run, model, TOKENIZER, ("a", "b"), problem)
    path = tmp_path / "x.fasta"
    path.write_text("".join(f">{name} x\nTHECAT\n" for name in NAMES))
    rows = [json.loads(line) for line in cli("predict", run, path, "--json").splitlines()]
    assert [row["id"] for row in rows] == NAMES
    assert [line.split("\t")[2] for line in cli("predict", run, path).splitlines()] == NAMES


def test_texts_without_ids_have_none(run: str, cli: Cli, tmp_path: Path):
    [row, *_] = cli("score", run, "A bird eats.", "--json").splitlines()
    assert "id" not in json.loads(row)
    cli("embed", run, "A bird", "--out", tmp_path / "v.npy")
    assert not (tmp_path / "v.ids.txt").exists()
    with pytest.raises(InputError, match="fewer ids"):
        embed(run, ["a", "b"], out=tmp_path / "w.npy", ids=["1"])


def test_repairs_are_said(run: str, cli: Cli, tmp_path: Path):
    path = tmp_path / "x.fasta"
    path.write_text(">a\nacgt\n>b\nACGT\n")
    _, _, err = cli.run("score", run, "--file", path)
    assert "1 x sequence in lower case made upper case" in err
