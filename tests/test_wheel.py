"""The wheel and the sdist hold all that the package needs, and the wheel runs by itself."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def list_package(root: Path) -> set[str]:
    paths = [path for path in (root / "maskwright").rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix() for path in paths if path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_wheel_holds_every_file_of_the_package_and_runs(built: Path, tmp_path: Path):
    [wheel] = built.glob("maskwright-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert list_package(tmp_path) == list_package(ROOT)
    assert {"maskwright/py.typed", "maskwright/recipes/tiny.yaml"} <= list_package(tmp_path)
    [metadata] = tmp_path.glob("*.dist-info")
    scripts = (metadata / "entry_points.txt").read_text(encoding="utf-8")
    assert "maskwright = maskwright.cli.main:main" in scripts
    run = "import sys, maskwright.cli.main as m; print(m.__file__); sys.exit(m.main(['recipes']))"
    result = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(tmp_path))
    assert "quickstart" in result.stdout


def test_the_sdist_holds_what_a_build_needs(built: Path, tmp_path: Path):
    [sdist] = built.glob("maskwright-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    assert list_package(folder) == list_package(ROOT)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md"):
        assert (folder / name).is_file(), name


def test_the_citation_is_that_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
