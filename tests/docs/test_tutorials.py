"""The tutorials run, with small budgets; their notebooks and the page of the API are current."""

import json
import random
import re
import shutil
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import yaml

from docs.tools.api_page import PAGE, convert, write_api_page
from docs.tools.tutorials import PAGES, read_outputs, run_cell, run_page, write_notebook
from maskwright import recipes
from maskwright.corpus.readers import pydocs

NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
# The first cell of each page has some of these.
SHORT = {
    "TOKENS": 6_000,
    "ADAPT_TOKENS": 20_000,
    "SENTENCES": 200,
    "DOCUMENTS": 300,
    "FILES": 24,
    "SEEDS": 2,
    "EPOCHS": 1,
    "PASSES": 0.03,
}


def read_page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One working directory, so that the pages share prepared text and the first encoder.

    The standard library is a part of itself, without other packages in the built-in corpus; the
    model of the recipe is small.
    """
    folder = tmp_path_factory.mktemp("tutorials")
    (folder / "articles.txt").write_text(write_articles(300), encoding="utf-8")
    own = shutil.copytree(recipes._FOLDER, folder / "recipes") / "quickstart.yaml"
    recipe = yaml.safe_load(own.read_text(encoding="utf-8"))
    recipe["model"] |= {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 96}
    own.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (folder / "library").mkdir()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::3]:
        shutil.copy(path, folder / "library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "_FOLDER", own.parent)
        patch.setattr(pydocs, "_PACKAGES", ())
        patch.setattr(sysconfig, "get_path", lambda _: folder / "library")
        yield folder


def write_articles(num: int) -> str:
    """Return texts of Korean syllables in the layout that the page on languages reads."""
    draw = random.Random(1)
    words = [
        "".join(draw.choices("서울부산그는나라도시물수역사문화세계대학", k=2)) for _ in range(60)
    ]
    lines = (" ".join(draw.choices(words, k=9)) for _ in range(5 * num))
    return "\n\n".join("\n".join([f"문서 {n}", "역사.", *islice(lines, 5)]) for n in range(num))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_the_page_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    page = read_page(name)
    outputs = read_outputs(run_page(page, SHORT))
    assert len(outputs) > 4
    assert [bool(output) for output in outputs] == [bool(one) for one in read_outputs(page)]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_and_its_notebook_are_the_same(name: str):
    page = read_page(name)
    notebook = (PAGES / f"{name}.ipynb").read_text(encoding="utf-8")
    assert notebook == write_notebook(page), "run python -m docs.tools tutorials"
    cells = json.loads(notebook)["cells"]
    assert sum(cell["cell_type"] == "code" for cell in cells) == len(read_outputs(page))
    assert cells[0]["source"][0].startswith("# ")
    assert not re.search(r"/(tmp|home|root|Users|work)/", "".join(read_outputs(page)))


def test_a_cell_shows_what_a_notebook_shows(capsys: pytest.CaptureFixture[str]):
    names: dict[str, object] = {}
    assert run_cell("a = 2\nprint('x')\na + 1\n", names) == "x\n3"
    assert run_cell("%%capture\nprint(a)\n", names) == ""
    assert "maskwright" in run_cell("!maskwright --version\n", names)
    assert capsys.readouterr().out == ""
    output = '```text title="Output"\nold\n```\n'
    page = f"```python\nA = 5\n```\n\n```python\nprint(A)\n```\n\n{output}"
    assert run_page(page, {"A": 7, "B": 1}) == page.replace("old", "7")


def test_the_page_of_the_api_is_current():
    assert PAGE.read_text(encoding="utf-8") == write_api_page(), (
        "run python -m docs.tools reference"
    )


def test_a_docstring_becomes_markdown():
    text = "Return ``a``::\n\n    f(1)\n\nMore.\n\nArgs:\n    a: the\n        first.\n    *b: more."
    assert convert(text) == (
        "\nReturn `a`:\n\n```python\nf(1)\n```\n\nMore.\n\n**Parameters**\n\n"
        "- `a`: the first.\n- `*b`: more.\n"
    )
    text = "Raises:\n    A: one thing\n        or more.\n    B, C: other: things."
    assert convert(text) == "\n**Raises** `A`, `B`, `C`\n"


def test_a_parameter_that_all_share_is_explained_once():
    text = "Args:\n    folder: a run directory, a model folder, or ``hf:NAME``."
    assert convert(text) == ""
    assert convert(text + "\n    b: own.") == "\n**Parameters**\n\n- `b`: own.\n"
    page = write_api_page()
    assert page.count("- `folder`: a run directory, a model folder, or `hf:NAME`.\n") == 1
    assert "FillMask.__call__(texts, top_k=5, " in page  # explained below, so without types
    assert "Tokenizer.token(token_id: int) -> str\n" in page
