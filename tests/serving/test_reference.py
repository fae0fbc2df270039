"""The page /docs: in a browser, without anything from elsewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect, sync_playwright
from starlette.testclient import TestClient

from tests.serving.test_app import serve
from tests.serving.test_playground import CHROMIUM
from tests.serving.test_playground import pytestmark as needs_browser

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
