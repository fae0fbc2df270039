"""List the rows of README and docs that promise something, with the code that they speak for.

A row of `specification.yaml` names that code in `speaks_for`. A result file has the commit that it
was measured at: what has changed in that code since makes the row stale, and `report` fails unless
the row is `dated`, a measure of a day that its file name has.
"""

import argparse
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common import ROOT, Result, find_result
from docs.tools.report import Block, Page, read_pages


@dataclass(frozen=True)
class Promise:
    """A row and the state of its file.

    Attributes:
        revision: the commit that the file was measured at.
        commits: commits since then that changed the code the row speaks for, the newest first.
        dated: True if the row states a measure of its day and no property of the code.
    """

    page: str
    row: str
    file: str
    revision: str
    commits: Sequence[str]
    dated: bool

    @property
    def is_stale(self) -> bool:
        return bool(self.commits) and not self.dated

    def __str__(self) -> str:
        count = len(self.commits)
        state = "renewed" if not count else "dated" if self.dated else "STALE"
        return (
            f"{state:8} {self.page}: {self.row} ({self.file}, {self.revision[:8]}, {count} since)"
        )


def list_promises(pages: Mapping[str, Page] | None = None) -> Iterator[Promise]:
    """Yield the rows of all pages that name the code they speak for.

    Raises:
        CalledProcessError: git does not know the commit of a file.
    """
    for path, page in (pages or read_pages()).items():
        for block in page.blocks:
            for row in block.get("rows", [block]):
                if "speaks_for" in row and (result := find_result(row["result"], page.results)):
                    yield _look(path, row, result)


def _look(page: str, row: Block, result: Result) -> Promise:
    source: Any = result.get("environment", {}).get("source") or {}
    revision = str(source.get("revision", ""))
    command = ["git", "log", "--format=%h %s", f"{revision}..HEAD", "--", *row["speaks_for"]]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    name = row.get("cells", ["all"])[0]
    return Promise(
        page, name, result["file"], revision, found.stdout.splitlines(), row.get("dated", False)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commits", action="store_true", help="list the commits of each row, too")


def main(arguments: argparse.Namespace) -> None:
    for promise in list_promises():
        print(promise)
        for commit in promise.commits if arguments.commits else ():
            print(f"         {commit}")
