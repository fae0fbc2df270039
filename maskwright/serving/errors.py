"""Errors as Hugging Face's API has them, or OpenAI's on its paths, and when which is given."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from maskwright.errors import MaskwrightError
from maskwright.serving.batcher import QueueFullError
from maskwright.serving.forms import TAGS, Refusal
from maskwright.serving.guard import INTERNAL, RETRY_SECONDS
from maskwright.serving.openai import describe_error

# Clients that ask again at once would take the interpreter from the thread of the model, so that
# under a flood of refusals hardly anything was answered (docs/experiments.md). They wait for them.
_REFUSAL_SECONDS = 0.25
_NO_JSON = "The body is no JSON."
_REASONS = {
    400: _NO_JSON,
    401: "Authorization: Bearer TOKEN is missing or wrong.",
    405: "The path is called in another way.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    421: "The server has no such name (without a token).",
    422: "It cannot be answered.",
    500: "Something failed inside.",
    503: "Too many texts wait already, or too many requests.",
    504: "The answer took too long.",
}
_PLAIN = {"missing": "is missing", "string_type": "must be a text"}  # for words of pydantic
Responses: TypeAlias = dict[int | str, dict[str, Any]]
REFUSALS: Responses = {
    status: {"model": Refusal, "description": reason} for status, reason in _REASONS.items()
}


def add_error_handlers(app: FastAPI) -> None:
    """Gives every error its form."""

    def say(
        request: Request, status: int, reason: str, headers: dict[str, str] | None = None
    ) -> JSONResponse:
        return JSONResponse(describe_error(request.url.path, status, reason), status, headers)

    @app.exception_handler(RequestValidationError)
    async def show_wrong(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return say(request, 400, _NO_JSON)
        reason = _PLAIN.get(first["type"], first["msg"])
        return say(request, 422, f"{_name_place(first['loc'][1:])}: {reason}")

    @app.exception_handler(MaskwrightError)
    async def show_refused(request: Request, error: MaskwrightError) -> JSONResponse:
        return say(request, 422, str(error))

    @app.exception_handler(QueueFullError)
    async def show_full(request: Request, error: QueueFullError) -> JSONResponse:
        await asyncio.sleep(_REFUSAL_SECONDS)
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return say(request, 503, "too many texts wait already; try again later", headers)

    @app.exception_handler(TimeoutError)
    async def show_late(request: Request, error: TimeoutError) -> JSONResponse:
        return say(request, 504, "the answer took too long")

    @app.exception_handler(Exception)
    async def show_failed(request: Request, error: Exception) -> JSONResponse:
        return say(request, 500, INTERNAL)  # the guard, which gets it next, logs it

    @app.exception_handler(HTTPException)
    async def show_http(request: Request, error: HTTPException) -> JSONResponse:
        reason = str(error.detail)
        if error.status_code == 400:  # bytes that are no text, or brackets without end
            reason = _NO_JSON
        if error.status_code == 404:
            reason = f"{request.url.path} is nothing here; /openapi.json lists what is"
        if error.status_code == 405:
            reason = f"{request.url.path} is not called by {request.method}"
        headers = dict(error.headers) if error.headers else {}
        if error.status_code == 405:  # of a path with several methods Starlette names one
            headers["Allow"] = ", ".join(_list_methods(app, request.url.path))
        return say(request, error.status_code, reason, headers)


def _name_place(parts: Sequence[str | int]) -> str:
    """Such as ``inputs[1].text``."""
    named = [part for part in parts if part not in TAGS.values()]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named)
    return place.removeprefix(".") or "the request"


def _list_methods(app: FastAPI, path: str) -> list[str]:
    routes = (route for route in app.routes if getattr(route, "path", None) == path)
    return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})
