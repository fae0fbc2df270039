"""What the page is told about the model: its task, an example of its own, one text or two."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.config import Level
from maskwright.model_folder.card import add_example
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import open_model, save_model
from maskwright.serving.answers import open_answerer
from maskwright.serving.page import Page
from maskwright.serving.reading import open_reader
from tests.finetuning.helpers import TOKENIZER, make_loaded

ENTITIES = ("B-PER", "B-LOC", "I-PER", "O")


def read_facts(folder: Path) -> dict[str, Any]:
    answerer = open_answerer(folder, "cpu")
    page = Page("small", answerer, open_reader(answerer), needs_token=False)
    [facts] = re.findall(r'data-facts="([^"]*)"', page.html)
    return json.loads(html.unescape(facts))


def save(
    folder: Path,
    texts: tuple[str, ...],
    *,
    level: Level = "text",
    labels: tuple[str, ...] = ("a", "b"),
    num_texts: int | None = None,
) -> Path:
    model = build_classifier(make_loaded().model, FinetuneConfig(), level, len(labels), seed=0)
    card = add_example("# Animals", texts)
    problem = "single_label_classification"
    save_classifier(folder, model, TOKENIZER, labels, problem, card, num_texts=num_texts)
    return folder


def test_a_run_of_pretraining_begins_with_its_own_text(workplace: Path) -> None:
    facts = read_facts(workplace / "runs" / "small" / "model")
    assert (facts["task"], facts["mask"]) == ("fill-mask", "[MASK]")
    [prompt] = facts["example"]
    assert "[MASK]" in prompt
    assert " eats " in prompt


@pytest.mark.parametrize(
    ("texts", "num_texts", "shown"),
    [
        (("the cat",), 1, ["the cat"]),
        (("the cat", "sees"), 2, ["the cat", "sees"]),
        (("the cat", "sees"), None, ["the cat", "sees"]),
        (("the cat",), 2, []),
        (("the cat", "sees"), 1, []),
        (("the cat" * 1000,), 1, []),
    ],
)
def test_an_example_is_shown_if_the_model_can_answer_it(
    texts: tuple[str, ...], num_texts: int | None, shown: list[str], tmp_path: Path
) -> None:
    facts = read_facts(save(tmp_path / "model", texts, num_texts=num_texts))
    assert (facts["example"], facts["numTexts"]) == (shown, num_texts)


@pytest.mark.parametrize(
    ("labels", "strategy", "kinds"),
    [(ENTITIES, "simple", ["PER", "LOC"]), (("DET", "NOUN"), "none", ["DET", "NOUN"])],
)
def test_entities_are_whole_and_parts_of_speech_single_words(
    labels: tuple[str, ...], strategy: str, kinds: list[str], tmp_path: Path
) -> None:
    facts = read_facts(save(tmp_path / "model", ("the cat",), level="token", labels=labels))
    assert (facts["strategy"], facts["kinds"]) == (strategy, kinds)
    assert facts["example"] == ["the cat"]


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("# No example", ""),
        ("---\nwidget:\n- text: no mask\n---\n", ""),
        ("---\nwidget: [\n---\n", "front matter"),
        ("---\nwidget: \x1b[2J\n", "front matter"),
    ],
)
def test_a_model_is_served_whatever_its_card_says(
    card: str, said: str, tmp_path: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = open_model(workplace / "runs" / "small" / "model")
    save_model(tmp_path / "model", loaded.model, loaded.tokenizer)
    (tmp_path / "model" / "README.md").write_text(card)
    assert read_facts(tmp_path / "model")["example"] == []
    warned = capsys.readouterr().err
    assert ("warning" in warned) == bool(said)
    assert said in warned


def test_a_card_that_is_a_link_out_of_the_folder_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(tmp_path / "model", ("the cat",))
    (tmp_path / "private.md").write_text(add_example("# Private", ["a secret"]))
    (folder / "README.md").unlink()
    (folder / "README.md").symlink_to(tmp_path / "private.md")
    assert read_facts(folder)["example"] == []
    assert "link" in capsys.readouterr().err
