"""Every command that reads text refuses one of which the tokenizer loses most."""

import json
import random
from pathlib import Path

import pytest

from tests.command import Cli

RANDOM = random.Random(0)
PROTEINS = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=250)) for _ in range(60)]


@pytest.fixture
def run(workplace: Path) -> str:
    return str(workplace / "runs" / "small")


@pytest.fixture
def proteins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "proteins.txt"
    path.write_text("\n".join(PROTEINS) + "\n")
    rows = (json.dumps({"text": text, "label": "ab"[n % 2]}) for n, text in enumerate(PROTEINS))
    (tmp_path / "proteins.jsonl").write_text("\n".join(rows) + "\n")
    pairs = (json.dumps({"sentence_good": a, "sentence_bad": a[::-1]}) for a in PROTEINS)
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs) + "\n")
    (tmp_path / "sts.tsv").write_text(
        "sentence1\tsentence2\tscore\n"
        + "".join(f"{a}\t{a[::-1]}\t{n}\n" for n, a in enumerate(PROTEINS))
    )
    return path


@pytest.mark.parametrize(
    "command",
    [
        "tokenizer train proteins.txt --out t",
        "prepare proteins.txt --out d",
        "prepare proteins.txt --out d --tokenizer.path RUN/model",
        "pretrain proteins.txt --recipe tiny --name n",
        "pretrain proteins.txt --recipe tiny --dry-run",
        "pretrain proteins.txt --init-from RUN --name n",
        "pretrain proteins.txt --init-from RUN --dry-run",
        "evaluate RUN --suite mlm --data proteins.txt",
        "evaluate RUN --suite blimp --blimp pairs.jsonl",
        "evaluate RUN --suite sts --data sts.tsv",
        "finetune RUN --task classification --train proteins.jsonl --out f",
        "finetune RUN --task embedding --train proteins.txt --out f",
    ],
)
def test_text_that_is_mostly_lost_is_refused(command: str, run: str, proteins: Path, cli: Cli):
    code, _, err = cli.run(*command.replace("RUN", run).split())
    assert code == 2, err
    assert "of the characters are lost" in err
    assert "in words of more than 100 characters" in err
    assert "character" in err.partition("lost")[2]


def test_fill_and_score_name_the_cause(run: str, proteins: Path, cli: Cli):
    for command in (["fill", run, f"{PROTEINS[0]} [MASK]"], ["score", run, PROTEINS[0]]):
        code, _, err = cli.run(*command)
        assert code == 0
        assert "in words of more than 100 characters" in err
