import importlib.util
import subprocess
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from maskwright.corpus.clean import clean_text
from maskwright.corpus.pydocs import read_pydocs


def test_the_environment_holds_megabytes_of_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch, for speed: it is the largest part and read by the same code."""
    find = importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == "torch" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    documents = dict(read_pydocs())
    text = "\n".join(documents.values())
    assert 2_000_000 < len(text) < 8_000_000
    assert documents["topics.assert"].startswith('The "assert" statement\nAssert statements are')
    assert any(name.startswith("numpy.") for name in documents)
    assert not any(name.startswith("torch.") for name in documents)
    words = Counter(text.split())
    assert [word for word, _ in words.most_common(1)] == ["the"]
    assert ">>>" not in words
    repairs: Counter[str] = Counter()
    clean_text(text, repairs)
    assert repairs.total() < 5


def test_the_order_is_that_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "A sentence of some words. " * 50
    (tmp_path / "test").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "test" / "skipped.py").write_text('"""Tests are skipped by name."""')
    (tmp_path / "b.py").write_text('"""The second module here."""')
    (tmp_path / "a.py").write_text(
        f'"""The first module here."""\ndef f():\n    """{long}"""\n'
        'def g():\n    """Does it all."""\n'
    )
    (tmp_path / "pkg" / "__init__.py").write_text('"""The package\'s own docstring."""')
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    documents = [pair for pair in read_pydocs() if not pair[0].startswith("topics.")]
    assert documents == [
        ("a.f", long.strip()),
        ("a (members)", "The first module here.\nDoes it all."),
        ("b (members)", "The second module here."),
        ("pkg (members)", "The package's own docstring."),
    ]


def test_nothing_is_imported() -> None:
    program = (
        "import sys; from maskwright.corpus.pydocs import read_pydocs; read = read_pydocs();"
        " [next(read) for _ in range(120)];"
        " sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'tkinter')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
