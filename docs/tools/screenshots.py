"""Take pictures of a terminal, of the playground, a run's report and its masks in chromium.

Pages have the width of a desktop or a phone, in light or dark mode.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.text import Text

from benchmarks.common import MASKWRIGHT, ROOT
from benchmarks.serving_load import serving

_SENTENCE = "The river flows through the [MASK] of the city."
_WHOLE = "The river flows through the north of the banana."
_ENTITIES = "In 1969 Neil Armstrong of NASA flew from Florida to the Moon with Buzz Aldrin ."
_FILLED = (
    "She studied at the [MASK] of Oxford.",
    "He was elected [MASK] of the United States.",
)
_MARKED = "#sentence [data-value]"
_FONT = r"(?s)\s*@font-face \{.*?\}"  # which a browser would download
_REPORT = "report.html"
_DRAWING_MS = 300
_RATES = (15, 40)  # percent


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open the system's chromium; end the program with one line if there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is not installed")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Browser, url: str, width: int, scheme: str) -> Iterator[Page]:
    """Open a page of this width that prefers this color scheme."""
    is_dark = scheme == "dark"
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if is_dark else "light"
    )
    page.goto(url)
    yield page
    page.close()


# Name, width, color scheme, text, and the part of its answer that is awaited.
_FILLING = (
    ("playground", 1000, "light", _SENTENCE, ".candidate"),
    ("playground-phone", 380, "dark", _WHOLE, _MARKED),
)
_TAGGING = (("playground-entities", 1000, "light", _ENTITIES, _MARKED),)


def take_playground(
    browser: Browser, model: str, images: Path, shots: Sequence[tuple[str, int, str, str, str]]
) -> None:
    """Take pictures of the page of a model, with the value of a marked word shown."""
    with serving(model) as (_, port):
        for name, width, scheme, text, awaited in shots:
            with open_page(browser, f"http://127.0.0.1:{port}", width, scheme) as page:
                # The page begins with an example, whose answer must not be taken for this one's.
                with page.expect_response(
                    lambda response, text=text: text in (response.request.post_data or "")
                ) as answered:
                    page.locator("#text").fill(text)
                answered.value.finished()
                page.locator(awaited).first.wait_for()
                if awaited == _MARKED:
                    page.locator(awaited).nth(1).hover()
                page.wait_for_timeout(_DRAWING_MS)
                page.screenshot(path=images / f"{name}.png", full_page=True)


def take_report(browser: Browser, run: Path, images: Path) -> None:
    """Take a picture of the whole page on a desktop, and of its beginning on a phone."""
    url = (run / _REPORT).resolve().as_uri()
    for name, width, whole in (("report", 1100, True), ("report-phone", 380, False)):
        with open_page(browser, url, width, "light") as page:
            page.screenshot(path=images / f"{name}.png", full_page=whole)


def take_masking(browser: Browser, data: Path, images: Path) -> None:
    """Take pictures of one row of prepared data at two mask rates, as `inspect --html` shows it."""
    listed = "all => all.map(section => section.dataset.rate)"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "masking.html"
        row = ("--rows", "1", "--row-length", "128", "--first-row", "2", "--html", str(path))
        subprocess.run([*MASKWRIGHT, "inspect", data.name, *row], check=True, cwd=data.parent)
        with open_page(browser, path.as_uri(), 900, "light") as page:
            rates = page.locator("section").evaluate_all(listed)
            slider = page.locator("input[type=range]")
            for rate in _RATES:
                slider.fill(str(rates.index(f"{rate}%")))
                slider.blur()
                page.locator("main").screenshot(path=images / f"masking-{rate}.png")


def draw_terminal(model: str, images: Path) -> None:
    """Write terminal.svg: `maskwright fill` with the sentences of `_FILLED`, and its answers."""
    terminal = Console(record=True, width=88, file=io.StringIO())
    for text in _FILLED:
        command = [*MASKWRIGHT, "fill", model, text, "--top-k", "3"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        shown = Text(f"$ maskwright fill runs/wiki '{text}' --top-k 3\n", style="bold")
        terminal.print(shown, Text(answer), sep="")
    svg = re.sub(_FONT, "", terminal.export_svg(title="maskwright"))
    (images / "terminal.svg").write_text(svg, encoding="utf-8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", help="a run of pretraining")
    parser.add_argument(
        "--rows", type=Path, metavar="DATA", help="prepared data: pictures of its masks"
    )
    parser.add_argument("--tagger", help="a run of fine-tuning that marks entities")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")


def main(arguments: argparse.Namespace) -> None:
    arguments.images.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        if arguments.run:
            draw_terminal(arguments.run, arguments.images)
            take_playground(browser, arguments.run, arguments.images, _FILLING)
            take_report(browser, Path(arguments.run), arguments.images)
        if arguments.tagger:
            take_playground(browser, arguments.tagger, arguments.images, _TAGGING)
        if arguments.rows:
            take_masking(browser, arguments.rows, arguments.images)
