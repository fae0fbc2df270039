from pathlib import Path

import pytest

from maskwright.errors import MissingPackageError
from maskwright.extras import import_extra
from tests.corpus.helpers import write


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingPackageError, match=r"^x needs .* nowhere.*'maskwright\[hub\]'$"):
        import_extra("nowhere.to.be.found", "hub", "x")


def test_a_broken_package_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "broken_package.py", "import absent_dependency")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        import_extra("broken_package", "hub", "x")
