"""Pages for browsers: the playground at /, and Swagger UI at /docs.

Both load nothing from another server, and their Content-Security-Policy enforces that.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response

from maskwright.finetuning.conll import OUTSIDE, marks_entities, split_tag
from maskwright.serving.pipelines import (
    FillMaskPipeline,
    Pipeline,
    TextClassificationPipeline,
    TokenClassificationPipeline,
)

DOCS_PATHS = ("/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json")
_DOCS, _DOCS_SCRIPT, _DOCS_STYLE, _OPENAPI = DOCS_PATHS
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_PLACEHOLDER = "{{facts}}"
_NO_ICON = "data:,"


class Playground:
    """The page at /, and a Content-Security-Policy that allows its own script and style, and
    requests to this server.
    """

    def __init__(self, name: str, pipeline: Pipeline[Any], *, needs_token: bool) -> None:
        facts: dict[str, object] = {
            "model": name,
            "task": pipeline.task,
            "mask": None,
            "scores": pipeline.scorer is not None,
            "needsToken": needs_token,
            # Anybody may read the page, and the author of a card may quote what others may not.
            "example": [] if needs_token else _choose_example(pipeline),
            **_list_task_facts(pipeline),
        }
        template = files("maskwright.serving").joinpath("playground.html").read_text("utf-8")
        self.html = template.replace(_PLACEHOLDER, html.escape(json.dumps(facts)))
        self.policy = _make_policy(
            scripts=_hash_inline(_SCRIPT, template), styles=_hash_inline(_STYLE, template)
        )


def _list_task_facts(pipeline: Pipeline[Any]) -> dict[str, object]:
    if isinstance(pipeline, FillMaskPipeline):
        return {"mask": pipeline.fill.tokenizer.mask_token}
    if isinstance(pipeline, TextClassificationPipeline):
        return {"numTexts": pipeline.predict.loaded.num_texts}
    if not isinstance(pipeline, TokenClassificationPipeline):
        return {}
    labels = pipeline.predict.loaded.labels
    kinds = dict.fromkeys(split_tag(label)[1] for label in labels if label != OUTSIDE)
    strategy = "simple" if marks_entities(labels) else "none"
    return {"strategy": strategy, "kinds": list(kinds)}


def _choose_example(pipeline: Pipeline[Any]) -> list[str]:
    """Return the example of the model card, or nothing if the model cannot process it."""
    texts = list(pipeline.example)
    if isinstance(pipeline, FillMaskPipeline):
        return texts[:1] if pipeline.fill.tokenizer.mask_token in "".join(texts[:1]) else []
    if isinstance(pipeline, TextClassificationPipeline):
        return texts if pipeline.predict.loaded.num_texts in (None, len(texts)) else []
    return texts[:1]


def add_docs(app: FastAPI) -> None:
    """Add Swagger UI at /docs, with the files of the package fastapi-swagger."""
    page = get_swagger_ui_html(
        openapi_url=_OPENAPI.removeprefix("/"),  # relative, for a proxy that adds a prefix
        title=app.title,
        swagger_js_url=_DOCS_SCRIPT.removeprefix("/"),
        swagger_css_url=_DOCS_STYLE.removeprefix("/"),
        swagger_favicon_url=_NO_ICON,
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},  # operations, no list of schemas
    )
    content = bytes(page.body)
    scripts = ["'self'", *_hash_inline(_SCRIPT, content.decode())]
    policy = _make_policy(scripts=scripts, styles=["'self'"])

    @app.get(_DOCS, include_in_schema=False)
    async def show_docs() -> Response:
        return HTMLResponse(content, headers={"content-security-policy": policy})

    def add_file(path: str, media_type: str) -> None:
        file = files("fastapi_swagger.resources").joinpath(path.removeprefix("/docs/"))

        @app.get(path, include_in_schema=False)
        def show_file() -> Response:
            return Response(file.read_bytes(), media_type=media_type)

    add_file(_DOCS_SCRIPT, "text/javascript")
    add_file(_DOCS_STYLE, "text/css")


def _make_policy(*, scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a Content-Security-Policy that allows these scripts and styles, and this server."""
    return (
        f"default-src 'none'; script-src {' '.join(scripts)}; style-src {' '.join(styles)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _hash_inline(pattern: re.Pattern[str], page: str) -> list[str]:
    digests = (hashlib.sha256(text.encode()).digest() for text in pattern.findall(page))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
