"""The index of research lists all of it: nothing that failed is lost."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESEARCH = ROOT / "research"
LINKS = re.findall(r"\]\(([^)\s]+)\)", (RESEARCH / "README.md").read_text(encoding="utf-8"))


def test_the_index_has_every_page() -> None:
    pages = {path.relative_to(RESEARCH).as_posix() for path in RESEARCH.rglob("*.md")}
    linked = {link.partition("#")[0] for link in LINKS if not link.startswith("../")}
    assert linked == pages - {"README.md"}


def test_the_index_has_every_experiment() -> None:
    text = (RESEARCH / "experiments.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles]
    assert len(slugs) > 50
    assert set(slugs) <= {link.partition("#")[2] for link in LINKS}
