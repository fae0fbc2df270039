"""The routes of a server: Hugging Face's format, OpenAI's vectors, health, metrics, a page."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer

from maskwright.errors import InputError
from maskwright.finetuning.conll import OUTSIDE
from maskwright.serving.answers import (
    DEFAULT_TOP_K,
    Answerer,
    FillAnswerer,
    LabelAnswerer,
    Question,
)
from maskwright.serving.batcher import Batcher, Limits, Passes
from maskwright.serving.config import ServeConfig
from maskwright.serving.connections import AcceptFailures
from maskwright.serving.errors import REFUSALS, Responses, add_error_handlers
from maskwright.serving.forms import (
    ANSWERS,
    Asked,
    EmbeddedTexts,
    FillParameters,
    Health,
    LabelParameters,
    Pair,
    ScoredText,
    TagParameters,
    Texts,
    Vectors,
)
from maskwright.serving.guard import App, Guard
from maskwright.serving.hosts import AllowedHosts
from maskwright.serving.metrics import Metrics
from maskwright.serving.openai import (
    PREFIX,
    EmbeddingAnswer,
    EmbeddingRequest,
    OpenAIRefusal,
    describe_vectors,
)
from maskwright.serving.page import Page
from maskwright.serving.reading import Reader
from maskwright.serving.reference import add_reference
from maskwright.serving.threads import DaemonThreads

_BATCH_TOKENS = 16_384  # that go through the model together; a single text may have more
_EMBEDDINGS = f"{PREFIX}embeddings"
_COUNTING_THREADS = 4  # so that one long text does not hold up the counting of others


class Service:
    """A model with its queues, and the handlers of its routes."""

    def __init__(self, name: str, answerer: Answerer, reader: Reader, config: ServeConfig) -> None:
        self.name, self.answerer, self.reader, self.config = name, answerer, reader, config
        paths = ("/", f"/models/{name}", "/embed", _EMBEDDINGS, "/score", "/health", "/metrics")
        self.metrics = Metrics(paths, lambda: sum(one.num_waiting for one in self.batchers))
        wait = config.max_wait_ms / 1e3
        limits = Limits(config.max_batch, _BATCH_TOKENS, wait, config.max_queued)
        self.model_thread = DaemonThreads("model", 1)
        self.counting_threads = DaemonThreads("tokenizer", _COUNTING_THREADS)
        shared = (limits, self.model_thread, self.metrics.observe_batch, Passes())
        self.questions: Batcher[Question, Any] = Batcher(answerer, *shared)
        self.vectors: Batcher[str, Any] = Batcher(reader.embed, *shared)
        self.scores: Batcher[str, Any] = Batcher(reader.score, *shared)

    @property
    def batchers(self) -> tuple[Batcher[Any, Any], ...]:
        return self.questions, self.vectors, self.scores

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncGenerator[None]:
        """Let the queues work as long as the server does."""
        asyncio.get_running_loop().set_exception_handler(AcceptFailures())
        for batcher in self.batchers:
            batcher.start()
        yield
        for batcher in self.batchers:
            await batcher.stop()
        for threads in (self.model_thread, self.counting_threads):
            threads.shutdown()

    async def fill(self, asked: Asked[FillParameters]) -> Any:
        """Words for the masks of one text, or of each in a list."""
        chosen = asked.parameters or FillParameters()
        targets = tuple(chosen.targets) if chosen.targets else None
        return await self._answer(asked.inputs, top_k=chosen.top_k, targets=targets)

    async def label(self, asked: Asked[LabelParameters]) -> Any:
        """Labels of one text or pair, or of each in a list."""
        chosen = asked.parameters or LabelParameters()
        function = chosen.function_to_apply
        return await self._answer(asked.inputs, top_k=chosen.top_k, function=function)

    async def tag(self, asked: Asked[TagParameters]) -> Any:
        """Tagged words or entities of one text, or of each in a list."""
        chosen = asked.parameters or TagParameters()
        ignored = (OUTSIDE,) if chosen.ignore_labels is None else tuple(chosen.ignore_labels)
        strategy = chosen.aggregation_strategy or "none"
        return await self._answer(asked.inputs, strategy=strategy, ignored=ignored)

    @property
    def handler(self) -> Callable[..., Awaitable[Any]]:
        """The one of these that the model is for."""
        handlers = {
            "fill-mask": self.fill,
            "text-classification": self.label,
            "token-classification": self.tag,
        }
        return handlers[self.answerer.task]

    async def _answer(self, inputs: str | Pair | list[str | Pair], **chosen: Any) -> Any:
        is_list = isinstance(inputs, list)
        each = inputs if isinstance(inputs, list) else [inputs]
        questions = [Question(*_texts_of(one), **chosen) for one in each]
        self._check_questions(questions)
        texts = [f"{one.text} {one.second}" if one.second else one.text for one in questions]
        # Texts of which words are tagged are cut in pieces, all of which are computed.
        longest = None if self.answerer.task == "token-classification" else self._longest
        answers = await self._ask(self.questions, questions, texts, longest)
        # As Hugging Face's API has it, labels of one text are a list in a list.
        is_nested = is_list or self.answerer.task == "text-classification"
        return answers if is_nested else answers[0]

    async def embed(self, asked: EmbeddedTexts) -> Any:
        """The vector of each text."""
        texts = _as_list(asked.inputs)
        return await self._ask(self.vectors, texts, texts, self._longest)

    async def embed_openai(self, asked: EmbeddingRequest) -> Any:
        """The vector of each text, as OpenAI's API has it."""
        if asked.model != self.name:
            raise InputError(f"model = {asked.model[:100]!r} is not served here: ask {self.name}.")
        width = self.reader.embedder.width
        if asked.dimensions not in (None, width):
            raise InputError(
                f"dimensions = {asked.dimensions} must be {width}, the model's. Leave it out."
            )
        texts = _as_list(asked.input)
        async with asyncio.timeout(self.config.answer_seconds):
            counts = await self._measure(texts, self._longest)
            vectors = await self._compute(self.vectors, texts, counts)
        in_base64 = asked.encoding_format == "base64"
        return describe_vectors(self.name, vectors, counts, in_base64=in_base64)

    async def score(self, asked: Texts) -> Any:
        """How likely each token of each text is; a pass through the model for every token."""
        texts = _as_list(asked.inputs)
        self._check_scored(texts)
        return await self._ask(self.scores, texts, texts, self._longest, power=2)

    async def describe(self) -> Any:
        """That it works, and what it is; 503 if it does not."""
        reads = self.reader.can_score
        is_working = self._is_working()
        found = {
            "status": "ok" if is_working else "not working",
            "model": self.name,
            "task": self.answerer.task,
            "scores": reads,
        }
        return JSONResponse(found, 200 if is_working else 503)

    def _is_working(self) -> bool:
        """Return True if what is asked now will be answered, as far as the latest passes tell.

        A pass or a tokenizer that takes longer than an answer may is taken for hung: nothing else
        is computed meanwhile.
        """
        threads = (self.model_thread, self.counting_threads)
        stuck = max(one.stuck_seconds for one in threads)
        return stuck <= self.config.answer_seconds and all(one.is_working for one in self.batchers)

    def _check_questions(self, questions: Sequence[Question]) -> None:
        """What the model cannot be asked at all, and too many candidates."""
        task = self.answerer.task
        for one in questions[:1]:  # all are to be answered in the same way
            self._check_chosen(one)
        if task != "text-classification" and any(one.second is not None for one in questions):
            raise InputError(f"text_pair is nothing to {task}: give one text.")
        if isinstance(self.answerer, FillAnswerer):
            mask = self.answerer.fill.tokenizer.mask_token
            asked = sum(one.text.count(mask) * (one.top_k or DEFAULT_TOP_K) for one in questions)
            if asked > self.config.max_candidates:
                raise InputError(
                    f"the request asks for {asked:,} words for its masks, at most "
                    f"{self.config.max_candidates:,} are given. Lower top_k."
                )

    def _check_scored(self, texts: Sequence[str]) -> None:
        """Masks written in a text would be read as brackets and letters."""
        mask = self.reader.embedder.tokenizer.mask_token
        for number, text in enumerate(texts):
            if mask in text:
                place = f"inputs[{number}]: " if len(texts) > 1 else ""
                raise InputError(
                    f"{place}{mask} has no score: it is for a word to be found, at POST /. "
                    "Give whole texts."
                )

    def _check_chosen(self, question: Question) -> None:
        if (question.top_k or 0) > self.config.max_top_k:
            raise InputError(f"top_k = {question.top_k} must be at most {self.config.max_top_k}.")
        if isinstance(self.answerer, LabelAnswerer):
            function = self.answerer.function
            if question.function not in (None, function):
                raise InputError(
                    f"function_to_apply = {question.function} is not this model's, which is "
                    f"{function}. Leave it out."
                )

    @property
    def _longest(self) -> int:
        return self.reader.embedder.longest

    async def _ask(
        self,
        batcher: Batcher[Any, Any],
        items: Sequence[Any],
        texts: Sequence[str],
        longest: int | None,
        power: int = 1,
    ) -> list[Any]:
        """The results of items, each of which costs the tokens of its text to this power."""
        async with asyncio.timeout(self.config.answer_seconds):
            costs = [count**power for count in await self._measure(texts, longest)]
            return await self._compute(batcher, items, costs)

    async def _measure(self, texts: Sequence[str], longest: int | None) -> list[int]:
        """Tokens of each text.

        Counted beside the event loop whatever their length: with a regular expression of a foreign
        tokenizer a few hundred characters may take seconds.
        """
        self._check_count(texts)
        loop = asyncio.get_running_loop()
        measure = partial(self.reader.measure, texts, longest)
        return await loop.run_in_executor(self.counting_threads, measure)

    def _check_count(self, items: Sequence[Any]) -> None:
        if len(items) > self.config.max_texts:
            raise InputError(
                f"the request has {len(items)} texts, at most {self.config.max_texts} are taken."
            )

    async def _compute(
        self, batcher: Batcher[Any, Any], items: Sequence[Any], costs: Sequence[int]
    ) -> list[Any]:
        if sum(costs) > self.config.max_tokens:
            raise InputError(
                f"the request takes {sum(costs):,} tokens through the model, at most "
                f"{self.config.max_tokens:,} are taken. Send fewer or shorter texts."
            )
        results = await batcher.submit(items, costs)
        for number, result in enumerate(results):
            if isinstance(result, InputError):
                raise InputError(f"inputs[{number}]: {result}" if len(items) > 1 else str(result))
            if isinstance(result, BaseException):
                raise result
        return results


def _texts_of(one: str | Pair) -> tuple[str, str | None]:
    return (one, None) if isinstance(one, str) else (one.text, one.text_pair)


def _as_list(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


def build_app(
    name: str,
    answerer: Answerer,
    reader: Reader,
    config: ServeConfig,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
) -> App:
    """The whole server as an ASGI application."""
    service = Service(name, answerer, reader, config)
    page = Page(name, answerer, reader, needs_token=token is not None)
    title, lifespan = f"maskwright: {name}", service.running
    app = FastAPI(
        title=title,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere: see add_reference
        redoc_url=None,
        redirect_slashes=False,  # behind TLS a redirect would have the text sent again in the clear
        lifespan=lifespan,
        responses=REFUSALS,
        # The guard checks the token; this has the document, and /docs with it, say so.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token is not None else [],
    )
    add_error_handlers(app)
    add_reference(app)

    def add(path: str, handler: Any, model: Any, refusals: Responses | None = None) -> None:
        # The model is what the document says; answers are not checked against it again.
        responses: Responses = {200: {"model": model}, **(refusals or {})}
        app.post(path, response_model=None, responses=responses)(handler)

    for path in ("/", f"/models/{name}"):
        add(path, service.handler, ANSWERS[answerer.task])
    add("/embed", service.embed, Vectors)
    refusals: Responses = {
        status: {**one, "model": OpenAIRefusal} for status, one in REFUSALS.items()
    }
    add(_EMBEDDINGS, service.embed_openai, EmbeddingAnswer, refusals)
    if reader.can_score:
        add("/score", service.score, list[ScoredText])
    app.get("/health", response_model=Health)(service.describe)
    app.head("/health", include_in_schema=False)(service.describe)  # of load balancers

    @app.head("/", include_in_schema=False)
    @app.get("/", response_class=HTMLResponse)
    async def show_page() -> HTMLResponse:
        """The playground."""
        return HTMLResponse(page.html)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4")

    hosts = AllowedHosts(config.host, allowed_hosts)
    return Guard(app, config, page.policy, token, service.metrics.observe_request, hosts)
