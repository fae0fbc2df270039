"""The README's commands and Python work as written, on a small corpus with small sizes."""

import re
import shlex
from pathlib import Path

import pytest

from maskwright.cli.main import COMMANDS, main
from tests.workplace import SMALL, write_corpus

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_BYTES = 6_000  # a front page is read, not studied


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def without_budget(flags: list[str]) -> list[str]:
    """README commands run for minutes; here for two steps, and small ones."""
    small = {"pretrain": [*SMALL, "--train.max_steps", "2"], "finetune": ["--epochs", "1"]}
    return small.get(flags[0], [])


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", "\n".join(code_blocks("sh")), flags=re.MULTILINE)
    assert targets[:2] == ["quickstart", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus" / "animals.txt", num_documents=100)
    rows = [f"A {word} film of {n} minutes.,{word}" for n in range(40) for word in ("good", "bad")]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    lines = [line for block in code_blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("maskwright")]
    assert {command[0] for command in commands} >= {"pretrain", "fill", "finetune"}
    for command in commands:
        # the budget in minutes goes, a budget of two steps comes
        kept = [part for part in command if part not in ("--train.max_minutes", "10")]
        assert main([*kept, *without_budget(command)]) == 0, command


def test_python_interface_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    snippet = next(block for block in code_blocks("python") if "from maskwright" in block)
    monkeypatch.chdir(tmp_path)
    snippet = re.sub(r"pretrain\(.*?\)\n", f'"{workplace / "runs" / "small" / "model"}"\n', snippet)
    exec(compile(snippet, "README.md", "exec"), {})


def test_the_front_page_is_short():
    assert len(README.encode()) <= MOST_BYTES


def test_every_command_is_in_the_table():
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert all(f"`maskwright {name}" in table for name in COMMANDS)


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("research/**/*.md")]
    assert len(pages) > 60
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
            if "://" in target:
                continue
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            # Research is of its day: headings of other pages may have changed since.
            if anchor and linked.suffix == ".md" and "research" not in page.parts:
                assert anchor in list_anchors(linked), f"{page.name}: {target}#{anchor}"


def list_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
