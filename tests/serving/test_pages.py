"""The playground: what it is told about the model. Swagger UI: in a browser, from this server."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect, sync_playwright
from starlette.testclient import TestClient

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.config import Level
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import open_model, save_model
from maskwright.model_folder.model_card import add_example
from maskwright.serving.pages import Playground
from maskwright.serving.pipelines import open_pipeline
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.serving.helpers import serve
from tests.serving.test_playground import CHROMIUM
from tests.serving.test_playground import pytestmark as needs_browser

ENTITIES = ("B-PER", "B-LOC", "I-PER", "O")


def read_facts(folder: Path) -> dict[str, Any]:
    pipeline = open_pipeline(folder, "cpu")
    playground = Playground("small", pipeline, needs_token=False)
    [facts] = re.findall(r'data-facts="([^"]*)"', playground.html)
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


def test_a_run_of_pretraining_begins_with_words_of_its_vocabulary(workplace: Path) -> None:
    facts = read_facts(workplace / "runs" / "small" / "model")
    assert (facts["task"], facts["mask"]) == ("fill-mask", "[MASK]")
    [prompt] = facts["example"]
    assert "[MASK]" in prompt
    words = {*prompt.split()}
    assert {"eats", "every", "in", "the"} <= words


@pytest.mark.parametrize(
    ("texts", "num_texts", "shown"),
    [
        (("the cat",), 1, ["the cat"]),
        (("the cat", "sees"), 2, ["the cat", "sees"]),
        (("the cat", "sees"), None, ["the cat", "sees"]),
        (("the cat",), 2, []),
        (("the cat", "sees"), 1, []),
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


ORIGIN = "http://localhost"


@pytest.fixture(scope="module")
def client(workplace: Path) -> Iterator[TestClient]:
    with serve(workplace / "runs" / "small" / "model", token="secret") as client:
        yield client


def test_the_page_names_only_files_of_this_server(client: TestClient) -> None:
    answer = client.get("/docs")
    assert answer.status_code == 200
    assert re.search(r"(https?:)?//[a-z]", answer.text.replace("// ", "")) is None
    [policy] = answer.headers.get_list("content-security-policy")
    assert "unsafe" not in policy
    for path in re.findall(r'(?:src|href)="(docs/[^"]+)"', answer.text):
        found = client.get(urljoin("/docs", path))
        assert found.status_code == 200
        assert len(found.content) > 10_000
    [other] = client.get("/").headers.get_list("content-security-policy")
    assert other != policy


def test_the_document_says_that_a_token_is_needed(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["paths"]["/embed"]["post"]["security"] == [{"HTTPBearer": []}]
    assert client.get("/metrics").status_code == 401  # the others still need it


@needs_browser
def test_an_operation_is_tried_in_a_browser(client: TestClient) -> None:
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page()

        def answer(route, request) -> None:
            """Ask the server in this process; what is of another origin is an error."""
            if not request.url.startswith(f"{ORIGIN}/"):
                errors.append(f"asked {request.url}")
                route.abort()
                return
            found = client.request(
                request.method,
                request.url.removeprefix(ORIGIN),
                content=request.post_data_buffer,
                headers=request.headers,
            )
            route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

        page.route("**/*", answer)
        page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{ORIGIN}/docs")
        operation = page.locator(".opblock", has=page.locator('[data-path="/v1/embeddings"]'))
        operation.locator(".opblock-summary").click(timeout=60_000)
        operation.get_by_role("button", name="Try it out").click()
        operation.locator("textarea").fill('{"input": "a", "model": "small"}')
        assert errors == []
        operation.get_by_role("button", name="Execute").click()
        status = operation.locator(".live-responses-table .response-col_status").last
        expect(status).to_contain_text("401")  # no token yet
        page.get_by_role("button", name="Authorize").first.click()
        page.get_by_role("textbox").first.fill("secret")
        page.locator(".modal-ux").get_by_role("button", name="Apply").click()
        page.locator(".modal-ux").get_by_role("button", name="Close").click()
        operation.get_by_role("button", name="Execute").click()
        expect(status).to_contain_text("200")
        browser.close()
    assert all("401" in error for error in errors)  # which the browser tells, too
