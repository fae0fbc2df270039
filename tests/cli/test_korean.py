"""Korean text through the whole program; reads MASKWRIGHT_DATA, a folder of real corpora."""

import gzip
import os
from pathlib import Path

import pytest

from maskwright.cli.main import main
from maskwright.logs import read_metrics
from maskwright.tokenizer.token_text import measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.workplace import SMALL


def read_wikipedia(split: str, num_characters: int) -> str:
    path = Path(os.environ["MASKWRIGHT_DATA"], "wiki_ko", f"wiki_ko.{split}.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read(num_characters)


@pytest.mark.skipif("MASKWRIGHT_DATA" not in os.environ, reason="needs real corpora")
@pytest.mark.parametrize(("kind", "most_unknown"), [("wordpiece", 0.02), ("bpe", 0.0)])
def test_korean_is_learned_with_few_unknown_tokens(kind: str, most_unknown: float, tmp_path: Path):
    (tmp_path / "ko.txt").write_text(read_wikipedia("train", 400_000), encoding="utf-8")
    folders = ["--runs-dir", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data")]
    tokenizer_flags = ["--tokenizer.kind", kind, "--tokenizer.vocab_size", "4096"]
    flags = [*SMALL, *tokenizer_flags, "--train.max_steps", "30", "--name", "ko"]
    assert main(["pretrain", str(tmp_path / "ko.txt"), *folders, *flags]) == 0
    tokenizer = Tokenizer.load(tmp_path / "runs" / "ko" / "model")
    stats = measure_tokenizer(tokenizer, [read_wikipedia("valid", 100_000)])
    assert stats.num_tokens > 1_000
    assert stats.unknown_share <= most_unknown
    sentence = "대한민국의 수도는 서울이다."
    assert tokenizer.decode(tokenizer.encode(sentence).ids) == sentence
    losses = [
        record["loss"]
        for record in read_metrics(tmp_path / "runs" / "ko" / "metrics.jsonl")
        if record["split"] == "valid"
    ]
    assert losses[-1] < losses[0]
