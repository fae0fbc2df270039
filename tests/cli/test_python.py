"""The functions of the Python interface do what their commands do."""

import asyncio
import io
import json
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import maskwright
from maskwright.errors import ConfigError, CorpusError, InputError, UnknownKeyError

pytestmark = pytest.mark.usefixtures("no_charts")

TINY: dict[str, Any] = {
    "tokenizer": {"vocab_size": 96, "min_frequency": 1},
    "corpus": {"valid_fraction": 0.1, "deduplicate": False},
}
SMALL: dict[str, Any] = {
    **TINY,
    "data": {"max_seq_length": 32},
    "model": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    },
    "train": {
        "max_steps": 4,
        "batch_tokens": 512,
        "compile": "off",
        "valid_tokens": 512,
        "final_valid_tokens": 512,
        "report": False,
    },
}
TEXTS = [f"The {size} cat eats fish.\u2028It is old." for size in ("small", "big", "old")] * 60


@pytest.fixture
def run(workplace: Path, tmp_path: Path) -> Path:
    return shutil.copytree(workplace / "runs" / "small", tmp_path / "small")


def test_pretraining_takes_an_iterator_of_texts(tmp_path: Path):
    def read() -> Iterator[str]:
        yield from TEXTS

    options: dict[str, Any] = {"data_dir": tmp_path / "data", "recipe": "tiny", **SMALL}
    folder = maskwright.pretrain(texts=read(), out=tmp_path / "run", **options)
    assert folder == tmp_path / "run" / "model"
    [kept] = (tmp_path / "data").glob("texts-*.jsonl")
    lines = kept.read_bytes().splitlines()
    assert [json.loads(line)["text"] for line in lines] == TEXTS
    # The same texts are the same data, and a run that ended is scored again.
    weights = (folder / "model.safetensors").read_bytes()
    options = {**options, "auto_resume": True}
    maskwright.pretrain(texts=TEXTS, out=tmp_path / "run", **options)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert len(list((tmp_path / "data").iterdir())) == 2


@pytest.mark.parametrize(
    ("texts", "error", "reason"),
    [
        ("one text", TypeError, "one string"),
        (["a text", 3], TypeError, r"texts\[1\] is int"),
        ([], CorpusError, "empty"),
    ],
)
def test_texts_that_are_none_are_refused(
    tmp_path: Path, texts: Any, error: type[Exception], reason: str
):
    with pytest.raises(error, match=reason):
        maskwright.prepare(texts=texts, out=tmp_path / "data")
    with pytest.raises(TypeError, match="not both"):
        maskwright.prepare("pydocs", texts=["a"], out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_prepare_writes_a_folder(workplace: Path, tmp_path: Path):
    text = workplace / "animals.txt"
    folder = maskwright.prepare(text, out=tmp_path / "data", **TINY)
    assert folder == tmp_path / "data"
    assert maskwright.TokenStore.open(folder, "train").num_tokens > 0
    with pytest.raises(UnknownKeyError, match=r"corpus\.valid_fraction"):
        maskwright.prepare(text, out=tmp_path / "other", corpus={"valid_fractoin": 0.1})


def test_evaluate_returns_what_the_command_prints(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    found = maskwright.evaluate(run, suite="mlm", fast=True, out=tmp_path / "found.json")
    assert capsys.readouterr().out == ""
    assert found == json.loads((tmp_path / "found.json").read_text())
    assert [suite["suite"] for suite in found["suites"]] == ["mlm"]
    with pytest.raises(InputError, match="did you mean fill"):
        maskwright.evaluate(run, suite=["fil"])


def test_compare_returns_the_differences(
    run: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
):
    found = maskwright.compare([run, run / "model"], data=workplace / "animals.txt", fast=True)
    assert capsys.readouterr().out == ""
    [difference] = found["differences_from_first"]
    assert {score["value"] for score in difference["scores"]} == {0.0}


def test_embed_writes_the_vectors_of_an_iterator(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    texts, out = ["the cat", "", "the cat " * 40], tmp_path / "vectors.npy"
    found = maskwright.embed(run, iter(texts), out=out, pooling="cls")
    assert (found.num_texts, found.width, found.num_cut, found.longest) == (3, 32, 1, 32)
    expected = maskwright.Embedder(run, pooling="cls")(texts)
    np.testing.assert_array_equal(np.load(out), expected)
    maskwright.embed(run, texts[0], out=tmp_path / "one.npy", normalize=False)
    assert np.load(tmp_path / "one.npy").shape == (1, 32)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(InputError, match="pooling = max"):
        maskwright.embed(run, texts, out=tmp_path / "new.npy", pooling=cast(Any, "max"))
    assert {path.name for path in tmp_path.glob("*.npy")} == {"vectors.npy", "one.npy"}


def test_finetune_writes_a_model_that_answers(run: Path, tmp_path: Path):
    lines = [f"The {a} cat {i} eats fish.\t{a}" for a in ("small", "big") for i in range(8)]
    table = tmp_path / "sizes.tsv"
    table.write_text("\n".join(["body\tsize", *lines]) + "\n")
    columns = {"sentence1": "body", "label": "size"}
    options: dict[str, Any] = {"train": table, "columns": columns, "valid_share": 0.25}
    folder = maskwright.finetune(
        run, task="classification", out=tmp_path / "run", epochs=1, **options
    )
    assert folder == tmp_path / "run" / "model"
    [answer] = maskwright.Predictor(tmp_path / "run")(["The small cat eats fish."])
    assert answer.probabilities.keys() == {"small", "big"}
    with pytest.raises(InputError, match="unknown task classify; did you mean classification"):
        maskwright.finetune(run, task="classify", out=tmp_path / "other", **options)
    with pytest.raises(ConfigError, match="learning_rate = fast"):
        maskwright.finetune(
            run, task="regression", out=tmp_path / "other", learning_rate="fast", **options
        )


def test_serve_answers_from_a_thread(run: Path):
    settings = {"port": 0, "quiet": True}  # it goes on when the test has ended
    server = threading.Thread(target=maskwright.serve, args=[run], kwargs=settings, daemon=True)
    # Not capsys, whose reading loses what another thread writes meanwhile.
    with redirect_stdout(io.StringIO()) as said:
        server.start()
        deadline = time.monotonic() + 60
        while not re.search(r" on \S+\n", said.getvalue()) and time.monotonic() < deadline:
            pass
    address = said.getvalue().partition(" on ")[2].split()[0]
    with urllib.request.urlopen(f"{address}/health", timeout=30) as answer:
        assert answer.status == 200


def test_serve_says_what_to_do_in_a_notebook(run: Path):
    async def cell() -> None:
        maskwright.serve(run)

    with pytest.raises(InputError, match="thread"):
        asyncio.run(cell())
