"""The page /docs: Swagger UI, with its files from this server and a policy of its own."""

import re
from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response

from maskwright.serving.page import hash_inline

PATHS = ("/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json")
_PAGE, _SCRIPT, _STYLE, _DOCUMENT = PATHS
_ICON = "data:,"  # none
_SCRIPTS = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_reference(app: FastAPI) -> None:
    """Add the page and its two files, which the package fastapi-swagger brings."""
    page = get_swagger_ui_html(
        openapi_url=_DOCUMENT.removeprefix("/"),  # relative, as of a server behind a proxy's path
        title=app.title,
        swagger_js_url=_SCRIPT.removeprefix("/"),
        swagger_css_url=_STYLE.removeprefix("/"),
        swagger_favicon_url=_ICON,
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},  # operations alone
    )
    content = bytes(page.body)
    headers = {"content-security-policy": _make_policy(content.decode())}

    @app.get(_PAGE, include_in_schema=False)
    async def show_reference() -> Response:
        """Show the operations of this server, and try them."""
        return HTMLResponse(content, headers=headers)

    def add_file(path: str, media_type: str) -> None:
        file = files("fastapi_swagger.resources").joinpath(path.removeprefix("/docs/"))

        @app.get(path, include_in_schema=False)
        def show_file() -> Response:
            return Response(file.read_bytes(), media_type=media_type)

    add_file(_SCRIPT, "text/javascript")
    add_file(_STYLE, "text/css")


def _make_policy(page: str) -> str:
    """Return a Content-Security-Policy under which the page has its own script and this server."""
    return "; ".join(
        (
            "default-src 'none'",
            " ".join(("script-src 'self'", *hash_inline(_SCRIPTS, page))),
            "style-src 'self'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
