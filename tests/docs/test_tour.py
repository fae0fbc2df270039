"""The tour shows what is: its examples give what it says, its quotes are right."""

import doctest
import io
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOUR = (DOCS / "tour.md").read_text(encoding="utf-8")
OMITTED = "…"

QUOTES = re.findall(r"<!-- quote: (\S+) -->\n```python\n(.*?)```\n", TOUR, flags=re.DOTALL)


def keep_examples(page: str) -> str:
    """The ``pycon`` blocks alone, on the lines where they stand, so that failures tell the line."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```pycon"
        kept.append(line if inside and not line.startswith("```") else "")
    return "\n".join(kept) + "\n"


def is_quoted_from(quote: str, source: str) -> bool:
    """Whether the lines of `quote` stand in `source`, in order; … may stand for omitted ones."""
    lines, place = source.splitlines(), 0
    parts = [part.strip("\n").split("\n") for part in re.split(f"(?m)^{OMITTED}$", quote)]
    for part in parts:
        starts = range(place, len(lines) - len(part) + 1)
        found = next((i for i in starts if lines[i : i + len(part)] == part), None)
        if found is None:
            return False
        place = found + len(part)
    return True


def test_examples_give_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    tour = doctest.DocTestParser().get_doctest(keep_examples(TOUR), {}, "tour.md", "tour.md", 0)
    assert len(tour.examples) > 50
    report = io.StringIO()
    results = doctest.DocTestRunner(verbose=False).run(tour, out=report.write)
    assert results.failed == 0, report.getvalue()


@pytest.mark.parametrize(("file", "quote"), QUOTES, ids=[file for file, _ in QUOTES])
def test_quotes_are_the_code(file: str, quote: str):
    assert is_quoted_from(quote, (ROOT / file).read_text(encoding="utf-8"))


def test_all_code_is_quoted_or_run():
    fences = re.findall(r"^```(.*)$", TOUR, flags=re.MULTILINE)
    assert set(fences) == {"python", "pycon", ""}
    assert fences.count("python") == TOUR.count("<!-- quote") == len(QUOTES) >= 10
    # A prompt outside a pycon block would not be run.
    assert keep_examples(TOUR).count(">>> ") == TOUR.count(">>> ")


def test_a_wrong_quote_is_found():
    source = "a = 1\nb = 2\n\nc = 3\nd = 4\n"
    assert is_quoted_from("b = 2\n\nc = 3\n", source)
    assert is_quoted_from("a = 1\n…\nc = 3\nd = 4\n", source)
    assert not is_quoted_from("a = 1\nc = 3\n", source)
    assert not is_quoted_from("c = 3\n…\na = 1\n", source)
    assert not is_quoted_from("b = 3\n", source)


def test_every_page_is_in_the_navigation():
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = re.findall(r"[\w\-/]+\.md", str(navigation))
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(pages)
