"""The wheel holds all that the package needs, and says that it is typed."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("maskwright-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    paths = [path for path in (ROOT / "maskwright").rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT).as_posix() for path in paths if path.suffix != ".pyc"}
    assert packed == expected
    assert {"maskwright/py.typed", "maskwright/recipes/tiny.yaml"} <= packed
