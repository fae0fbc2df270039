"""A small corpus with something to learn in it, and a finished run over it."""

import json
import random
from pathlib import Path

import pytest

from maskwright.cli.main import main

SMALL = [
    "--tokenizer.vocab_size", "96", "--tokenizer.min_frequency", "1",
    "--corpus.valid_fraction", "0.1", "--corpus.deduplicate", "false",
    "--data.max_seq_length", "32", "--model.hidden_size", "32", "--model.num_hidden_layers", "2",
    "--model.num_attention_heads", "2", "--model.intermediate_size", "48",
    "--train.batch_tokens", "512", "--train.compile", "off", "--train.log_every_steps", "10",
    "--train.valid_tokens", "1024", "--train.final_valid_tokens", "2048", "--train.report", "false",
]  # fmt: skip


def write_corpus(path: Path, num_documents: int = 300) -> Path:
    """Sentences of a small grammar in which the animal decides what it eats."""
    draw = random.Random(0)
    food = {"horse": "grass", "cat": "fish", "bird": "seeds", "fox": "berries"}
    sizes, places = ["small", "big", "old", "young"], ["river", "forest", "garden", "village"]
    documents: list[str] = []
    for _ in range(num_documents):
        lines = []
        for _ in range(draw.randint(1, 6)):
            animal, eaten = draw.choice(sorted(food.items()))
            size, place = draw.choice(sizes), draw.choice(places)
            lines.append(f"The {size} {animal} in the {place} eats {eaten} every day.")
        documents.append("\n".join(lines))
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, prepared data and a finished run named ``small``."""
    root = tmp_path_factory.mktemp("workplace")
    text = write_corpus(root / "animals.txt")
    budget = ["--train.max_steps", "150"]
    folders = ["--runs-dir", str(root / "runs"), "--data-dir", str(root / "data")]
    assert main(["pretrain", str(text), *folders, "--name", "small", *SMALL, *budget]) == 0
    return root


def data_of(workplace: Path) -> Path:
    """Return the prepared data of the run ``small``; other tests may prepare more beside it."""
    facts = json.loads((workplace / "runs" / "small" / "provenance.json").read_text("utf-8"))
    return Path(facts["prepared_data"])
