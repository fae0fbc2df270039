"""Error responses: the status of each exception, and the body, in OpenAI's format under /v1/."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from maskwright.errors import InputError, MaskwrightError, ModelFolderError
from maskwright.serving.batcher import QueueFullError
from maskwright.serving.schemas import INPUT_TAGS, ErrorResponse, OpenAIErrorResponse

OPENAI_PREFIX = "/v1/"
RETRY_SECONDS = 1  # ``Retry-After`` of an overloaded server
INTERNAL_ERROR = "internal error; the server log has the traceback"
# Clients that retry at once compete with the model for the interpreter: without this delay a flood
# of refusals leaves almost no throughput (docs/experiments.md).
_REFUSAL_SECONDS = 0.25
_NO_JSON = "The body is not valid JSON."
_REASONS = {
    400: f"{_NO_JSON[:-1]}, or embeddings have no such dimensions.",
    401: "Authorization: Bearer TOKEN is missing or wrong.",
    405: "The path does not accept this method.",
    408: "The request took too long to arrive.",
    413: "The request is too large.",
    421: "The Host header does not name this server (without a token).",
    422: "A field is missing or invalid, or the model cannot process the text.",
    500: "Internal error.",
    503: "Too many texts are waiting, or too many requests.",
    504: "The answer took too long.",
}
_PYDANTIC_REASONS = {"missing": "is missing", "string_type": "must be a string"}
Responses: TypeAlias = dict[int | str, dict[str, Any]]  # of a route, as FastAPI takes them
ERROR_RESPONSES: Responses = {
    status: {"model": ErrorResponse, "description": reason} for status, reason in _REASONS.items()
}
OPENAI_ERROR_RESPONSES: Responses = {
    status: {**response, "model": OpenAIErrorResponse}
    for status, response in ERROR_RESPONSES.items()
}


class ValueRefusedError(InputError):
    """A value of a request that OpenAI's API answers with 400."""


def describe_error(path: str, status: int, reason: str) -> ErrorResponse | OpenAIErrorResponse:
    """Return the body of an error."""
    if not path.startswith(OPENAI_PREFIX):
        return {"error": reason}
    code = {401: "invalid_api_key", 404: "not_found", 503: "overloaded"}.get(status)
    return {
        "error": {
            "message": reason,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "param": None,
            "code": code,
        }
    }


def add_error_handlers(app: FastAPI) -> None:
    """Answer every exception with a status and a body of this server."""

    def respond(
        request: Request, status: int, reason: str, headers: Mapping[str, str] | None = None
    ) -> JSONResponse:
        return JSONResponse(describe_error(request.url.path, status, reason), status, headers)

    @app.exception_handler(RequestValidationError)
    async def handle_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return respond(request, 400, _NO_JSON)
        reason = _PYDANTIC_REASONS.get(first["type"], first["msg"])
        return respond(request, 422, f"{_name_field(first['loc'][1:])}: {reason}")

    @app.exception_handler(MaskwrightError)
    async def handle_refused(request: Request, error: MaskwrightError) -> JSONResponse:
        known = {ModelFolderError: 500, ValueRefusedError: 400}
        status = next((known[kind] for kind in known if isinstance(error, kind)), 422)
        return respond(request, status, str(error))

    @app.exception_handler(QueueFullError)
    async def handle_full_queue(request: Request, error: QueueFullError) -> JSONResponse:
        await asyncio.sleep(_REFUSAL_SECONDS)
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return respond(request, 503, "too many texts are waiting; try again later", headers)

    @app.exception_handler(TimeoutError)
    async def handle_timeout(request: Request, error: TimeoutError) -> JSONResponse:
        return respond(request, 504, "the answer took too long")

    @app.exception_handler(Exception)
    async def handle_bug(request: Request, error: Exception) -> JSONResponse:
        return respond(request, 500, INTERNAL_ERROR)  # Starlette raises it again: the guard logs it

    @app.exception_handler(HTTPException)
    async def handle_http(request: Request, error: HTTPException) -> JSONResponse:
        reason, path = str(error.detail), request.url.path
        headers = dict(error.headers) if error.headers else {}
        if error.status_code == 400:  # bytes that are not UTF-8, or too deep a nesting
            reason = _NO_JSON
        if error.status_code == 404:
            reason = f"there is no {path}; /openapi.json lists the paths"
        if error.status_code == 405:
            reason = f"{path} does not accept {request.method}"
            routes = (route for route in app.routes if getattr(route, "path", None) == path)
            allowed = {one for route in routes for one in getattr(route, "methods", None) or ()}
            headers["Allow"] = ", ".join(sorted(allowed))  # Starlette names one of them
        return respond(request, error.status_code, reason, headers)


def _name_field(location: Sequence[str | int]) -> str:
    """Return the field at pydantic's location of an error, for example ``inputs[1].text``."""
    parts = [part for part in location if part not in INPUT_TAGS.values()]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return field.removeprefix(".") or "the request"
