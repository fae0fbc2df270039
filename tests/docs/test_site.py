"""The documentation site: no link leads nowhere, formulas are drawn, tables show bars."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tools.site import finish_site, list_broken, render_formula

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of these pages, as `make docs` builds it."""
    place = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "docs", place / "docs")
    shutil.copy(ROOT / "mkdocs.yml", place)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    finish_site(place / "site", ROOT)
    return place / "site"


def test_no_link_leads_nowhere(site: Path):
    assert list(list_broken(site)) == []
    source = site / "source" / "maskwright" / "data" / "permutation.py.html"
    assert "def permute" in source.read_text(encoding="utf-8")
    assert "permutation.py" in (site / "tour.html").read_text(encoding="utf-8")
    # Markdown outside of docs is shown as it is.
    assert "source/research/README.md.html" in (site / "results.html").read_text(encoding="utf-8")
    assert (site / "source" / "research" / "README.md.html").is_file()


def test_formulas_are_drawn(site: Path):
    page = (site / "evaluation.html").read_text(encoding="utf-8")
    assert page.count("<math ") >= 15
    assert "arithmatex" not in page
    assert re.search(r"\\(frac|sum|exp|ln|le)\b", re.sub(r"<pre>.*?</pre>", "", page)) is None


def test_tables_show_bars(site: Path):
    assert "<code>a|b</code>" in (site / "finetune.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path):
    loaded = r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="https?:'
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert [name for name, text in pages.items() if re.search(loaded, text)] == []


def test_a_broken_link_is_found(tmp_path: Path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a> <a href="b.html#gone">b</a>')
    (tmp_path / "b.html").write_text(
        '<h1 id="there">b</h1> <img src="gone.png"><a href="https://x">'
    )
    assert list(list_broken(tmp_path)) == ["a.html: b.html#gone", "b.html: gone.png"]


def test_a_formula_is_read_as_html_writes_it():
    assert "<mo>&#x02264;</mo>" in render_formula(r"\(a \le b\)")
    assert 'display="block"' in render_formula(r"\[a &lt; b\]")
