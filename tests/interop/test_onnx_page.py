"""Export to transformers.js: its layout, and the page in the system's chromium.

The browser needs files from npm: set MASKWRIGHT_TRANSFORMERS_JS to a folder with
``transformers.min.js`` and the ``ort-wasm-simd-threaded*`` files of onnxruntime-web.
"""

import functools
import os
import shutil
import threading
from collections.abc import Generator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from maskwright.errors import ExportError
from maskwright.interop.comparison import pad_rows
from maskwright.interop.export import export
from maskwright.model_folder.folder import open_model
from tests.interop.models import NATIVE, OWN, encode, write_model
from tests.tokenizer.helpers import trained

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
LIBRARY = os.environ.get("MASKWRIGHT_TRANSFORMERS_JS")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, traced_once: None) -> Path:
    folder = tmp_path_factory.mktemp("bert")  # the model of test_onnx, and so its graph
    tokenizer = trained("wordpiece")
    write_model(folder / "model", NATIVE["bert"], judges_pairs=True, tokenizer=tokenizer)
    assert export(folder / "model", "transformers-js", folder / "out").comparison.largest <= 1e-5
    return folder / "out"


def test_the_layout_is_that_of_transformers_js(exported: Path):
    names = {path.relative_to(exported).as_posix() for path in exported.rglob("*.*")}
    assert names == {
        *("config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model.onnx"),
        *("index.html", "README.md", "export.json"),
    }
    page = (exported / "index.html").read_text(encoding="utf-8")
    assert "[MASK]" in page
    assert "{{" not in page
    assert "library_name: transformers.js" in (exported / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "reason"), [(OWN, "qk_norm = True"), ({"preset": "gte"}, "model_type = gte")]
)
def test_what_transformers_js_does_not_know_is_refused(
    fields: dict[str, Any], reason: str, tmp_path: Path
):
    folder = write_model(tmp_path / "model", fields)
    with pytest.raises(ExportError, match=rf"{reason}.*to onnx"):
        export(folder, "transformers-js", tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address(exported: Path) -> Generator[str]:
    assert LIBRARY is not None
    shutil.copytree(LIBRARY, exported / "vendor")
    page = exported / "index.html"
    text = page.read_text(encoding="utf-8")
    cdn = text.split('name="library" content="')[1].split('"')[0]
    page.write_text(text.replace(cdn, "./vendor/transformers.min.js"), encoding="utf-8")
    handler = functools.partial(Quiet, directory=str(exported))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.skipif(LIBRARY is None, reason="MASKWRIGHT_TRANSFORMERS_JS names no folder")
def test_the_browser_fills_masks_as_the_model_does(exported: Path, address: str):
    playwright = pytest.importorskip("playwright.sync_api")
    loaded = open_model(exported.parent / "model")
    row = loaded.wrap(loaded.tokenizer.encode_prompt("the cat [MASK] on the tree").ids.tolist())
    batch = pad_rows([row], loaded.tokenizer.pad_id)
    logits = loaded.model.head(encode(loaded, batch)[0, 3])
    best = loaded.tokenizer.tokens(logits.topk(5).indices.tolist())
    outside: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.on("request", lambda one: outside.append(one.url))
        page.goto(address)
        page.fill("#text", "the cat [MASK] on the tree")
        page.wait_for_selector("button:enabled", timeout=120_000)
        page.click("button")
        page.wait_for_selector("tr:nth-child(5)")
        found = page.locator("td:nth-child(2)").all_text_contents()
        browser.close()
    assert found == best
    assert all(url.startswith((address, f"blob:{address}")) for url in outside)
