"""A small preparation of which every byte must be the same."""

import random
from collections.abc import Callable
from pathlib import Path

from maskwright.preparation.work import ENCODE, EXACT, READ, VOCABULARY
from maskwright.shards.manifest import MANIFEST_NAME
from tests.reliability.crash.job import Job
from tests.reliability.crash.killing import Moment, after, appearing, never, when, write_text


class Preparations(Job):
    """The same text, prepared by two workers.

    Args:
        folder: an empty folder to work in.
        megabytes: of text, in blocks of one at most.
    """

    aims = dict.fromkeys(("beginning", READ, EXACT, VOCABULARY, ENCODE, "end", "anywhere"), 1)

    def __init__(self, folder: Path, megabytes: float = 6.5) -> None:
        super().__init__(folder)
        self.text = write_text(folder / "text.txt", megabytes)
        self.seconds = self.run_whole().seconds

    def list_arguments(self, out: Path) -> list[str]:
        arguments = ["prepare", str(self.text), "--out", str(out), "--workers", "2"]
        return [*arguments, "--block_megabytes", "1", "--tokenizer.vocab_size", "1024"]

    def list_folders(self, out: Path) -> tuple[Path, ...]:
        return out, *out.glob(".work-*/*/")

    def is_resumable(self, out: Path) -> bool:
        return (out / MANIFEST_NAME).is_file() or any(out.glob(".work-*/*/*.json"))

    def aim(self, out: Path, aim: str, draw: random.Random) -> Moment:
        if aim == "beginning":
            return never if out.exists() else when(out.exists, draw.uniform(0, 0.01))
        if aim == VOCABULARY:
            is_late = any(out.glob(f".work-*/{VOCABULARY}"))
            wait = draw.uniform(0, 0.3 * self.seconds)
            return never if is_late else when(_appearing(out, f".work-*/{VOCABULARY}"), wait)
        if aim == "end":
            return when(appearing(out, ".unigram"), draw.uniform(0, 0.01))
        if aim == "anywhere":
            return after(draw.uniform(0, self.seconds))
        return when(_appearing(out, f".work-*/{aim}/*"), draw.uniform(0, 0.01))

    def aim_stop(self, out: Path, number: int, draw: random.Random) -> Moment:
        return when(_appearing(out, f".work-*/{ENCODE}/*"))

    def find_place(self, out: Path, left: set[Path], metrics: bytes) -> str:
        if left:
            return f"writing in {min(left).parent.name}"
        if (out / MANIFEST_NAME).is_file():
            return "tidying up, or over"
        stages = (ENCODE, VOCABULARY, EXACT, READ)
        begun = (f"between files of {name}" for name in stages if any(out.glob(f".work-*/{name}")))
        return next(begun, "starting")


def _appearing(out: Path, pattern: str) -> Callable[[], bool]:
    """Return a test for new files of stages; those of an earlier process do not count."""
    before = set(out.glob(pattern))

    def has_appeared() -> bool:
        try:
            return not before.issuperset(out.glob(pattern))
        except FileNotFoundError:  # a folder was removed while it was listed
            return False

    return has_appeared
