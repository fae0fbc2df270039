from pathlib import Path

import pytest

from maskwright import extras
from maskwright.errors import MissingPackageError
from maskwright.extras import how_to_install, import_extra
from tests.corpus.helpers import write


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingPackageError, match=r"^x needs .* nowhere.*\[hub\]'$"):
        import_extra("nowhere.to.be.found", "hub", "x")


def test_a_clone_installs_from_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "maskwright" / "extras.py"))
    assert how_to_install("hub") == "Run: pip install 'maskwright[hub]'"
    write(tmp_path / "pyproject.toml", "")
    assert how_to_install("hub") == f"Run: pip install -e '{tmp_path}[hub]'"


def test_a_broken_package_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "broken_package.py", "import absent_dependency")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        import_extra("broken_package", "hub", "x")
