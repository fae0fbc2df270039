"""A row is stale if the code that it speaks for has changed since its file was measured."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import ROOT
from docs.tools import promises
from docs.tools.promises import list_promises
from docs.tools.report import Page, read_pages


def commit(repository: Path, name: str, text: str) -> str:
    """Write a file and commit it; the new revision."""
    (repository / name).write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["add", "."], [*author, "commit", "--quiet", "--message", f"{name} {text}"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.mark.parametrize("dated", [False, True])
def test_list_promises_finds_what_has_changed_since(
    dated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(promises, "ROOT", tmp_path)
    commit(tmp_path, "a.py", "1")
    revision = commit(tmp_path, "b.py", "1")
    result: dict[str, Any] = {"environment": {"source": {"revision": revision}}}
    (tmp_path / "2026-01-01_cpu_kills.json").write_text(json.dumps(result))
    rows = [
        {"result": "kills", "speaks_for": [name], "cells": [name], "dated": dated}
        for name in ("a.py", "b.py")
    ]
    pages = {"page.md": Page("page.md", [{"rows": [*rows, {"cells": ["no file"]}]}], tmp_path)}
    assert [promise.is_stale for promise in list_promises(pages)] == [False, False]
    commit(tmp_path, "b.py", "2")
    kept, changed = list_promises(pages)
    assert (kept.row, kept.commits) == ("a.py", [])
    assert (changed.row, len(changed.commits), changed.is_stale) == ("b.py", 1, not dated)


def test_all_code_that_a_row_speaks_for_exists() -> None:
    rows = [
        row
        for page in read_pages().values()
        for block in page.blocks
        for row in block.get("rows", [block])
        if "speaks_for" in row
    ]
    assert len(rows) > 10
    assert [name for row in rows for name in row["speaks_for"] if not (ROOT / name).exists()] == []
