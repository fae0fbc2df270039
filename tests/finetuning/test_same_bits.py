"""The same fine-tuning ends with the same bits on two threads, whatever the task and its loss."""

import json
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.model_folder.folder import save_model
from tests.cli.test_finetune import write_table
from tests.finetuning.helpers import TOKENIZER, make_loaded, write_tags
from tests.unordered import assert_same_bits

FAST = [
    "--epochs",
    "1",
    "--learning_rate",
    "0.003",
    "--device",
    "cpu",
    "--patience",
    "0",
    "--beside",
    "off",
]
TEXT = ["--columns", "sentence1=text"]
LABEL = [*TEXT, "label=right"]
PAIR = [*TEXT, "sentence2=right"]
KINDS = {
    "classification": ["classification", *LABEL],
    "weights": ["classification", *LABEL, "--class_weights", "true"],
    "muon": ["classification", *LABEL, "--optimizer", "muon"],
    "pair": ["regression", *PAIR, "label=count", "--pooling", "bi"],
    "multilabel": ["multilabel", *LABEL],
    "regression": ["regression", *TEXT, "label=count"],
    "beside": ["classification", *LABEL, "--beside", "on"],
    "tokens": ["tokens"],
    "spans": ["spans"],
    "embedding": ["embedding", *PAIR],
    "mined": ["embedding", *PAIR, "--negatives", "mined"],
    "nested": ["embedding", *PAIR, "--dimensions", "8"],
    "scores": ["embedding", *PAIR, "score=count"],
    "simcse": ["embedding"],
    "tsdae": ["embedding", "--objective", "tsdae"],
}


def write_train(folder: Path, kind: str) -> Path:
    """The examples of a kind."""
    if kind == "tokens":
        return write_tags(folder / "train.conll", 40)
    if kind == "spans":
        rows = [
            {
                "question": "the cat sees",
                "context": f"the cat {number} sees the dog",
                "answers": {"text": ["dog"], "answer_start": [18 + len(str(number))]},
            }
            for number in range(40)
        ]
        (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return folder / "train.jsonl"
    if kind in ("simcse", "tsdae"):
        texts = [f"the cat sees the dog {number} and the x-ray" for number in range(200)]
        (folder / "train.txt").write_text("\n".join(texts), encoding="utf-8")
        return folder / "train.txt"
    return write_table(folder / "train.tsv", 60)


@pytest.mark.parametrize("kind", KINDS)
def test_fine_tuning_has_the_same_bits(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / "model", make_loaded().model, TOKENIZER)
    train, numbers, (task, *flags) = write_train(tmp_path, kind), count(), KINDS[kind]

    def work() -> str:
        out = tmp_path / f"out{next(numbers)}"
        command = ["finetune", str(tmp_path / "model"), "--task", task, "--train", str(train)]
        assert main([*command, "--out", str(out), *FAST, *flags]) == 0, capsys.readouterr().err
        files = sorted((out / "model").rglob("*.safetensors"))
        return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    assert_same_bits(work, numbers=(2,))
