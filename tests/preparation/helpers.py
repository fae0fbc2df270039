"""Text and configurations for the tests of this package."""

import random
from pathlib import Path
from typing import Any

import pytest

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


def interrupt_at(monkeypatch: pytest.MonkeyPatch, worker: type[Any], count: int) -> list[int]:
    """Has Ctrl-C come when so many parts have been begun; gives the numbers of all that are."""
    work, begun = worker.__call__, list[int]()

    def work_or_stop(self: Any, part: Any) -> None:
        begun.append(part.index)
        if len(begun) == count:
            raise KeyboardInterrupt
        work(self, part)

    monkeypatch.setattr(worker, "__call__", work_or_stop)
    return begun


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
