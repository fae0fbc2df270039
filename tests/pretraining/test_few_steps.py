"""A run of a few steps with candidates, on words without any order."""

import math
from itertools import product
from pathlib import Path

import numpy as np

from maskwright import pretrain
from maskwright.logs import read_metrics

VOCAB_SIZE = 4096


def write_zipf_texts() -> list[str]:
    """Return texts of `VOCAB_SIZE` words of three syllables; the n-th is 1 / n as frequent."""
    syllables = [f"{c}{v}" for c, v in product("bdfgklmnprst", "aeiou")]
    generator = np.random.default_rng(0)
    every = ["".join(word) for word in product(syllables, repeat=3)]
    words = generator.permutation(every)[:VOCAB_SIZE]
    weights = 1 / np.arange(1, VOCAB_SIZE + 1)
    drawn = generator.choice(words, (500, 200), p=weights / weights.sum())
    return [" ".join(text) for text in drawn]


def test_few_steps_of_auto_are_never_worse_than_a_uniform_guess(tmp_path: Path) -> None:
    """Each token is a candidate in one of 15 steps; with all steps so, the loss reached 12."""
    train = {"max_minutes": None, "max_steps": 30, "batch_tokens": 1024, "num_candidates": 512}
    scored = {"num_validations": 10, "valid_tokens": 2048, "final_valid_tokens": 2048}
    machine = {"report": False, "precision": "fp32", "compile": "off", "device": "cpu"}
    size = {"hidden_size": 128, "num_hidden_layers": 1, "intermediate_size": 128, "sizes": []}
    pretrain(
        texts=write_zipf_texts(),
        recipe="auto",
        out=tmp_path / "run",
        data_dir=tmp_path / "data",
        corpus={"valid_fraction": 0.05},
        tokenizer={"vocab_size": VOCAB_SIZE, "min_frequency": 1},
        model=size,
        train={**train, **scored, **machine},
    )
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = [record["loss"] for record in records if record["split"] == "valid"]
    assert len(losses) == scored["num_validations"]
    assert max(losses) < math.log(VOCAB_SIZE)
