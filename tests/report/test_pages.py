"""The pages in a real browser: on a phone no word is broken, and nothing is wider than the page.

Needs the chromium of the system; with MASKWRIGHT_BROWSER set it fails without, and else it is
passed over.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from maskwright.report.pages import render_selection
from maskwright.report.run_page import render_page
from maskwright.runs.evaluation_file import Score, SuiteResult
from maskwright.selection.selector import Tally
from tests.finetuning.test_report import render as render_classifier
from tests.report.test_run_page import make_manifest, make_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.usefixtures("drawn_charts"),
    pytest.mark.skipif(
        CHROMIUM is None and not os.environ.get("MASKWRIGHT_BROWSER"),
        reason="chromium is not installed",
    ),
]
# The words of up to 30 letters that begin in one line and end in another.
FIND_BROKEN = """() => {
  const broken = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    if (node.parentElement.closest("svg, style")) continue;
    for (const { 0: word, index } of node.data.matchAll(/[a-z\\d]+/gi)) {
      if (word.length > 30) continue;  // a hash
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) broken.push(word);
    }
  }
  return broken;
}"""
LABELS = ("EducationalInstitution", "Athlete", "MeanOfTransportation")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@cache  # its charts take a second
def evaluated_run() -> str:
    scores = (
        Score("seen_mask/masked_accuracy", 0.3, 0.28, 0.32, 900, 0.05),
        Score("loss", 6.2, None, None, 9),
    )
    provenance = {"tokenizer_fingerprint": 8 * "0123456789abcdef", "cpu": "Some CPU"}
    settings = {"final_valid_tokens": 200, "limits": {"max_repeated_line_characters": 0.2}}
    result = SuiteResult("mlm", {"name": "held out", "fingerprint": "f"}, {}, scores)
    more: dict[str, Any] = {"config": {"train": settings}, "manifest": make_manifest({"x": 1})}
    return render_page([make_run(provenance=provenance, evaluation=[result], **more)])


def selected_text() -> str:
    tally = Tally(read=3)
    tally.keep("a text")
    tally.drop("quality: max_repeated_line_characters", "another text")
    manifest = make_manifest({})
    splits = {**manifest.splits, "valid": manifest.splits["train"]}
    source = {"paths": ["/home/jane/larvae.txt"], "select": {"decontaminate": ["/home/jane/b"]}}
    return render_selection("data", replace(manifest, source=source, splits=splits), tally)


@cache
def compared_runs() -> str:
    return render_page([make_run("first-run"), make_run("second_run_with_a_long_name", 800)])


PAGES = {
    "run": evaluated_run,
    "runs": compared_runs,
    "selection": selected_text,
    "classifier": cache(
        lambda: render_classifier("classification", [*LABELS], [*LABELS[::-1]], LABELS)
    ),
}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_words_are_whole_at_every_width(name: str, width: int, browser: Browser):
    page = open_page(browser, PAGES[name](), width)
    assert page.evaluate(FIND_BROKEN) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_one_learning_curve_is_shown_and_can_be_switched(browser: Browser):
    page = open_page(browser, evaluated_run(), 1280)
    curves = page.locator(".switch figure")
    for number, cost in enumerate(("steps", "tokens", "wall-clock minutes")):
        page.get_by_role("radio", name=cost).check()
        for other in range(3):
            expect(curves.nth(other)).to_be_visible(visible=other == number)
    page.close()


def open_page(browser: Browser, content: str, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(content)
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    return page
