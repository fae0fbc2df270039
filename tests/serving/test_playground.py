"""The playground in a real browser: what it shows, who can use it, and what it will not run.

Needs the chromium of the system; with MASKWRIGHT_BROWSER set it fails without, and else it is
passed over.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, expect, sync_playwright

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.config import Level
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import open_model
from maskwright.model_folder.model_card import add_example
from tests.serving.test_server import serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("MASKWRIGHT_BROWSER"),
    reason="chromium is not installed",
)
PAIR = ("The old horse.", "The horse is old.")
TAGGED = ("The small horse in the forest \U0001f600 eats grass every day .",)
HOSTILE = ("<script>hacked = 1</script> [MASK].", "<img src=x onerror='hacked = 1'> [MASK].")


@pytest.fixture(scope="module")
def url(workplace: Path) -> Iterator[str]:
    with serving(workplace, "--quiet") as (_, url):
        yield url


@contextmanager
def serving_labels(
    workplace: Path,
    root: Path,
    level: Level,
    labels: tuple[str, ...],
    example: tuple[str, ...],
    num_texts: int | None = None,
) -> Iterator[str]:
    """A server of a model whose labels differ from text to text."""
    pretrained = open_model(workplace / "runs" / "small" / "model")
    model = build_classifier(pretrained.model, FinetuneConfig(), level, len(labels), seed=2)
    with torch.no_grad():
        model.head.output.weight.mul_(20)
    folder, problem = root / "runs" / "labels" / "model", "single_label_classification"
    card = add_example("# Labels", example)
    tokenizer = pretrained.tokenizer
    save_classifier(folder, model, tokenizer, labels, problem, card, num_texts=num_texts)
    with serving(root, "--quiet", run="labels") as (_, url):
        yield url


@pytest.fixture(scope="module")
def pairs_url(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("pairs")
    with serving_labels(workplace, root, "text", ("other", "same"), PAIR, 2) as url:
        yield url


@pytest.fixture(scope="module")
def tags_url(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("tags")
    labels = ("B-ANIMAL", "B-FOOD", "O")
    with serving_labels(workplace, root, "token", labels, TAGGED) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Visit:
    """A page that is open, and what went wrong in it."""

    def __init__(self, browser: Browser, url: str, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.goto(url)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def write(self, text: str) -> None:
        self.page.locator("#text").fill(text)

    def ask(self, change: Callable[[], None]) -> Any:
        """The inputs of the request that a change leads to, whose answer is shown."""
        self.page.locator(".candidate").first.wait_for()  # nothing else is on its way
        status = self.page.locator("#status")
        status.evaluate("(element) => { element.textContent = 'not yet' }")
        with self.page.expect_response(lambda found: found.request.method == "POST") as asked:
            change()
        assert asked.value.ok
        expect(status).to_have_text("")
        posted: Any = asked.value.request.post_data_json
        return posted["inputs"]


@pytest.fixture
def visit(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    visit = Visit(browser, url, **getattr(request, "param", {}))
    yield visit
    visit.context.close()
    assert visit.errors == []


def test_candidates_follow_as_one_types(visit: Visit) -> None:
    visit.write("The small [MASK] eats [MASK] every day.")
    candidates = visit.page.locator(".candidate")
    candidates.nth(15).wait_for()
    assert candidates.count() == 16  # eight for each mask
    assert "%" in candidates.first.inner_text()
    first = candidates.first.locator("span").nth(1).inner_text()
    candidates.first.click()
    sentence = visit.page.get_by_label("Sentence").input_value()
    assert sentence == f"The small {first} eats [MASK] every day."


def test_a_word_is_hidden_by_a_click_and_shown_by_another(visit: Visit) -> None:
    visit.write("The horse eats grass.")
    word = visit.page.get_by_role("button", name="horse")
    word.click()
    assert visit.page.get_by_label("Sentence").input_value() == "The [MASK] eats grass."
    visit.page.locator(".candidate").first.wait_for()
    mask = visit.page.locator("#words button[aria-pressed=true]")
    assert mask.count() == 1
    mask.click()
    assert visit.page.get_by_label("Sentence").input_value() == "The horse eats grass."


def test_it_can_be_used_by_keyboard_alone(visit: Visit) -> None:
    visit.page.get_by_label("Sentence").fill("The horse eats grass.")
    visit.page.get_by_label("Sentence").focus()
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    assert visit.page.get_by_label("Sentence").input_value() == "The [MASK] eats grass."
    assert visit.page.evaluate("document.activeElement.textContent") == "[MASK]"


def test_a_whole_sentence_is_colored_by_surprise(visit: Visit) -> None:
    visit.write("The horse eats grass.")
    visit.page.locator("#sentence span").first.wait_for()
    assert visit.page.locator("#sentence").inner_text() == "The horse eats grass."
    visit.page.get_by_role("button", name="grass").last.hover()
    expect(visit.page.get_by_role("tooltip")).to_contain_text("%")
    assert "Pseudo-perplexity" in visit.page.locator("#total").inner_text()


def test_the_command_that_is_copied_is_the_one_that_was_asked(visit: Visit) -> None:
    visit.write("The horse eats grass.")
    visit.page.locator("#sentence span").first.wait_for()
    # Where there is no clipboard, the command is shown.
    visit.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject() }")
    visit.page.get_by_role("button", name="curl").click()
    visit.page.locator("#status", has_text="/score").wait_for()
    visit.write("The [MASK] eats grass.")
    visit.page.locator(".candidate").first.wait_for()
    visit.page.get_by_role("button", name="curl").click()
    visit.page.locator("#status", has_text='"top_k":8').wait_for()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_not_run(visit: Visit, text: str) -> None:
    assert visit.ask(lambda: visit.write(text)) == text
    visit.page.get_by_role("button", name="hacked").wait_for()
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("main img, main script").count() == 0


def test_what_cannot_be_answered_is_said(browser: Browser, url: str) -> None:
    visit = Visit(browser, url)
    visit.page.set_viewport_size({"width": 360, "height": 800})
    visit.write("[MASK] " + "x" * 90)
    visit.page.locator("#status.error").wait_for()
    assert "Shorten it" in visit.page.locator("#status").inner_text()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360
    visit.context.close()


def test_a_second_text_makes_a_pair_and_is_reached_by_keyboard(
    browser: Browser, pairs_url: str
) -> None:
    visit = Visit(browser, pairs_url)
    press = visit.page.keyboard.press
    first, second = visit.page.get_by_label("First text"), visit.page.get_by_label("Second text")
    assert (first.input_value(), second.input_value()) == PAIR
    pair = {"text": "The horse.", "text_pair": PAIR[1]}
    assert visit.ask(lambda: visit.write("The horse.")) == pair
    press("Tab")
    press("Control+a")
    assert visit.ask(lambda: press("a")) == {"text": "The horse.", "text_pair": "a"}
    assert second.input_value() == "a"
    assert visit.page.locator(".candidate").count() == 2
    press("Backspace")
    expect(visit.page.locator("#status")).to_contain_text("second text")
    expect(visit.page.locator(".candidate").first).not_to_be_visible()
    press("Space")  # blanks are no text
    expect(visit.page.locator("#status")).to_contain_text("second text")
    assert visit.errors == []
    visit.context.close()


def test_entities_are_marked_in_the_text_with_values_for_mouse_and_keyboard(
    browser: Browser, tags_url: str
) -> None:
    visit = Visit(browser, tags_url)
    page, tip = visit.page, visit.page.get_by_role("tooltip")
    marked = page.locator("#sentence .entity")
    marked.nth(1).wait_for()
    answer = page.request.post(
        tags_url, data={"inputs": TAGGED[0], "parameters": {"aggregation_strategy": "simple"}}
    ).json()
    shown = marked.evaluate_all(
        "(all) => all.map((one) => [...one.childNodes].map((n) => n.textContent))"
    )
    assert shown == [[one["word"], one["entity_group"]] for one in answer]
    values = [f"{one['entity_group']} {100 * one['score']:.1f} %" for one in answer]
    assert not tip.is_visible()
    marked.first.hover()
    expect(tip).to_have_text(values[0])
    page.locator("h1").hover()
    expect(tip).not_to_be_visible()
    page.locator("#text").focus()
    page.keyboard.press("Tab")
    expect(tip).to_have_text(values[0])
    page.keyboard.press("ArrowRight")
    expect(tip).to_have_text(values[1])
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name == f"{answer[1]['word']}: {values[1]}"
    page.keyboard.press("Escape")
    expect(tip).not_to_be_visible()
    page.keyboard.press("End")
    expect(tip).to_have_text(values[-1])
    page.keyboard.press("Tab")  # past all other marked words
    assert page.evaluate("document.activeElement.id") == "copy"
    assert visit.errors == []
    visit.context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_it_is_accessible_and_fits(
    browser: Browser, url: str, scheme: str, width: int, tmp_path: Path
) -> None:
    size = {"width": width, "height": 800}
    visit = Visit(browser, url, viewport=size, color_scheme=scheme, bypass_csp=True)
    two_masks = "The [MASK] horse eats [MASK] " + "x" * 18
    # The text that the page opens with has one mask, thus fewer candidates.
    for text, shown in ((two_masks, ".candidate >> nth=15"), ("The horse eats.", "#sentence span")):
        visit.write(text)
        visit.page.locator(shown).first.wait_for()
        found = Axe().run(visit.page)
        assert found.violations_count == 0, found.generate_report()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.page.screenshot(path=str(tmp_path / f"{scheme}-{width}.png"))
    visit.context.close()
