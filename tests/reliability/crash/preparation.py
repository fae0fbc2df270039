"""A small preparation of which every byte must be the same."""

import random
from pathlib import Path

from tests.reliability.crash.job import Job
from tests.reliability.crash.killing import (
    Moment,
    after,
    appearing,
    list_names,
    never,
    when,
    write_text,
)


class Preparations(Job):
    """The same text, prepared by two workers.

    Args:
        folder: an empty folder to work in.
        megabytes: of text; a shard holds one.
    """

    aims = dict.fromkeys(("beginning", "tokenizer", "shards", "end", "anywhere"), 1)

    def __init__(self, folder: Path, megabytes: float = 6.5) -> None:
        super().__init__(folder)
        self.text = write_text(folder / "text.txt", megabytes)
        self.seconds = self.run_whole().seconds

    def list_arguments(self, out: Path) -> list[str]:
        arguments = ["prepare", str(self.text), "--out", str(out), "--workers", "2"]
        return [*arguments, "--shard_megabytes", "1", "--tokenizer.vocab_size", "1024"]

    def list_folders(self, out: Path) -> tuple[Path, ...]:
        return out, out / "train", out / "valid"

    def is_resumable(self, out: Path) -> bool:
        return (out / "tokenizer").exists()

    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        if aim == "beginning":
            return never if out.exists() else when(out.exists, draw.uniform(0, 0.01))
        if aim == "tokenizer":
            wait = draw.uniform(0, 0.3 * self.seconds)
            has_tokenizer = self.is_resumable(out)
            return never if has_tokenizer else when((out / "preparing.json").exists, wait)
        if aim == "shards":
            return when(appearing(out / "train", "."), draw.uniform(0, 0.01))
        if aim == "end":
            return when(appearing(out, ".unigram"), draw.uniform(0, 0.01))
        return after(draw.uniform(0, self.seconds))

    def aim_stop(self, out: Path, number: int, draw: random.Random) -> Moment:
        return when(appearing(out / "train", "."))

    def find_place(self, out: Path, left: set[Path], metrics: bytes) -> str:
        if any(path.parent != out for path in left):
            return "writing a shard"
        if left:
            return f"writing {min(left).name.removeprefix('.').removesuffix('.tmp')}"
        if (out / "manifest.json").is_file():
            return "tidying up, or over"
        if list_names(out / "train"):
            return "between shards"
        if (out / "tokenizer").is_dir():
            return "starting to encode"
        if (out / "preparing.json").is_file():
            return "training the tokenizer"
        return "starting"
