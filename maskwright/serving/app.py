"""The routes of a server: Hugging Face's inference format, vectors, health, metrics, a page."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from maskwright.errors import InputError, MaskwrightError
from maskwright.serving.answers import Answerer, Question
from maskwright.serving.batcher import Batcher, QueueFullError
from maskwright.serving.config import ServeConfig
from maskwright.serving.guard import App, Guard
from maskwright.serving.metrics import Metrics
from maskwright.serving.page import Page
from maskwright.serving.reading import Reader

_RETRY_SECONDS = 1
Text = Annotated[str, Field(max_length=1_000_000)]


class Pair(BaseModel):
    """Two texts of one question."""

    model_config = ConfigDict(extra="forbid")
    text: Text
    text_pair: Text | None = None


class Parameters(BaseModel):
    """How a question is to be answered."""

    model_config = ConfigDict(extra="ignore")  # clients send what other tasks know
    top_k: int | None = Field(None, ge=1)
    targets: list[Text] | None = Field(None, min_length=1, max_length=1000)


class Asked(BaseModel):
    """A request as Hugging Face's clients send it."""

    model_config = ConfigDict(extra="ignore")
    inputs: Text | Pair | list[Text | Pair]
    parameters: Parameters | None = None


class Texts(BaseModel):
    """Texts to read, not to answer."""

    model_config = ConfigDict(extra="ignore")
    inputs: Text | list[Text]


class TooMuchError(InputError):
    """More than the server takes."""


class Service:
    """A model with its queues, and the handlers of its routes."""

    def __init__(self, name: str, answerer: Answerer, reader: Reader, config: ServeConfig) -> None:
        self.name, self.answerer, self.reader, self.config = name, answerer, reader, config
        self.paths = ("/", f"/models/{name}", "/embed", "/score", "/health", "/metrics")
        self.metrics = Metrics(self.paths, lambda: self.questions.num_waiting)
        limits = (config.max_batch, config.max_wait_ms / 1e3, config.max_queued)
        shared = (ThreadPoolExecutor(1, "model"), self.metrics.observe_batch)
        self.questions: Batcher[Question, Any] = Batcher(answerer, *limits, *shared)
        self.vectors: Batcher[str, Any] = Batcher(reader.embed, *limits, *shared)
        self.scores: Batcher[str, Any] = Batcher(reader.score, *limits, *shared)

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncGenerator[None]:
        """The queues work as long as the server does."""
        batchers = (self.questions, self.vectors, self.scores)
        for batcher in batchers:
            batcher.start()
        yield
        for batcher in batchers:
            await batcher.stop()

    async def answer(self, asked: Asked) -> Any:
        """Answers to one input, or to a list of them."""
        parameters = asked.parameters or Parameters(top_k=None, targets=None)
        if (parameters.top_k or 0) > self.config.max_top_k:
            raise TooMuchError(
                f"top_k = {parameters.top_k} must be at most {self.config.max_top_k}."
            )
        is_list = isinstance(asked.inputs, list)
        inputs = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
        targets = tuple(parameters.targets) if parameters.targets else None
        questions = [
            Question(one.text, one.text_pair, parameters.top_k, targets)
            if isinstance(one, Pair)
            else Question(one, None, parameters.top_k, targets)
            for one in inputs
        ]
        answers = await self._compute(self.questions, questions)
        # As Hugging Face's API has it, labels of one text are a list in a list.
        is_nested = is_list or self.answerer.task == "text-classification"
        return answers if is_nested else answers[0]

    async def embed(self, asked: Texts) -> Any:
        """The vector of each text."""
        return await self._compute(self.vectors, _as_list(asked.inputs))

    async def score(self, asked: Texts) -> Any:
        """How likely each token of each text is."""
        return await self._compute(self.scores, _as_list(asked.inputs))

    def describe(self) -> dict[str, Any]:
        """That it works, and what it is."""
        reads = self.reader.can_score
        return {"status": "ok", "model": self.name, "task": self.answerer.task, "scores": reads}

    async def _compute(self, batcher: Batcher[Any, Any], items: Sequence[Any]) -> list[Any]:
        if len(items) > self.config.max_texts:
            raise TooMuchError(
                f"the request has {len(items)} texts, at most {self.config.max_texts} are taken."
            )
        async with asyncio.timeout(self.config.answer_seconds):
            results = await batcher.submit(items)
        for number, result in enumerate(results):
            if isinstance(result, InputError):
                raise InputError(f"inputs[{number}]: {result}" if len(items) > 1 else str(result))
        return results


def _as_list(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


def build_app(
    name: str, answerer: Answerer, reader: Reader, config: ServeConfig, token: str | None = None
) -> App:
    """The whole server as an ASGI application."""
    service = Service(name, answerer, reader, config)
    page = Page(name, answerer, reader, needs_token=token is not None)
    # The documentation pages of FastAPI load scripts from elsewhere; /openapi.json stays.
    title, lifespan = f"maskwright: {name}", service.running
    app = FastAPI(title=title, docs_url=None, redoc_url=None, lifespan=lifespan)
    _add_errors(app)
    app.post("/")(service.answer)
    app.post(f"/models/{name}")(service.answer)
    app.post("/embed")(service.embed)
    if reader.can_score:
        app.post("/score")(service.score)
    app.get("/health")(service.describe)

    @app.get("/", response_class=HTMLResponse)
    def show_page() -> HTMLResponse:
        """The playground."""
        return HTMLResponse(page.html)

    @app.get("/metrics", response_class=PlainTextResponse)
    def show_metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4")

    return Guard(app, config, page.policy, token, service.metrics.observe_request)


def _add_errors(app: FastAPI) -> None:
    """Errors as Hugging Face's API has them: ``{"error": "…"}``."""

    def say(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": reason}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def show_wrong(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return say(422, f"{place or 'the request'}: {first['msg']}")

    @app.exception_handler(MaskwrightError)
    async def show_refused(request: Request, error: MaskwrightError) -> JSONResponse:
        return say(422, str(error))

    @app.exception_handler(QueueFullError)
    async def show_full(request: Request, error: QueueFullError) -> JSONResponse:
        headers = {"Retry-After": str(_RETRY_SECONDS)}
        return say(503, "too many texts wait already; try again later", headers)

    @app.exception_handler(TimeoutError)
    async def show_late(request: Request, error: TimeoutError) -> JSONResponse:
        return say(504, "the answer took too long")

    @app.exception_handler(404)
    async def show_unknown(request: Request, error: Exception) -> JSONResponse:
        return say(404, f"{request.url.path} is nothing here; /openapi.json lists what is")
