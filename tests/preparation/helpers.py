"""Text and configurations for the tests of this package."""

import random
from pathlib import Path

from maskwright.preparation.config import PrepareConfig
from maskwright.tokenizer.config import TokenizerConfig

_SYLLABLES = ["ka", "to", "mi", "ren", "su", "lo", "vi", "nar", "pe", "dol", "ghi", "us"]


def write_corpus(path: Path, megabytes: float = 0.05, seed: int = 0) -> Path:
    """A text file of invented words, a document a paragraph; returns `path`."""
    generator = random.Random(seed)
    words = ["".join(generator.choices(_SYLLABLES, k=generator.randint(1, 4))) for _ in range(900)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        while num_bytes < megabytes * 1e6:
            text = " ".join(generator.choices(words, weights, k=generator.randint(5, 150)))
            num_bytes += file.write(text + ".\n\n")
    return path


def small_config(shard_megabytes: int = 1, workers: int = 1) -> PrepareConfig:
    tokenizer = TokenizerConfig(vocab_size=256)
    return PrepareConfig(tokenizer=tokenizer, shard_megabytes=shard_megabytes, workers=workers)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
