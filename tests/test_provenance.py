import json
import subprocess
from pathlib import Path

import pytest

from maskwright import provenance
from maskwright.provenance import describe_environment, find_version


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def make_checkout(folder: Path, *tracked: str) -> None:
    (folder / "maskwright").mkdir()
    for name in ("maskwright/provenance.py", "private.txt"):
        (folder / name).write_text("one\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", *tracked)
    git(folder, "commit", "--quiet", "--message", "first")


def test_the_environment_is_plain_values() -> None:
    described = describe_environment()
    assert json.loads(json.dumps(described)) == described
    assert described["packages"]["numpy"]
    assert described["cpu"]
    assert (described["cpu_count"] or 0) >= 1


def test_a_checkout_gives_its_revision_and_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkout(tmp_path, "maskwright", "private.txt")
    file = tmp_path / "maskwright" / "provenance.py"
    file.write_text("two\n", encoding="utf-8")
    (tmp_path / "private.txt").write_text("secret\n", encoding="utf-8")
    monkeypatch.setattr(provenance, "__file__", str(file))
    source = describe_environment()["source"]
    assert source
    assert len(source["revision"]) == 40
    assert "+two" in source["diff"]
    assert "secret" not in source["diff"]  # outside the package


def test_a_package_installed_inside_another_checkout_says_nothing_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkout(tmp_path, "private.txt")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "maskwright" / "provenance.py"))
    assert describe_environment()["source"] is None


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert find_version("torch")
    assert find_version("no-such-package") is None
