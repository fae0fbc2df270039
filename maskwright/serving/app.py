"""The routes: the model's task, embeddings, token scores, health, metrics and pages."""

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from fastapi import Depends, FastAPI
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp

from maskwright.errors import InputError
from maskwright.serving.batcher import Batcher, Compute, Item, Result
from maskwright.serving.config import ServeConfig
from maskwright.serving.guard import AllowedHosts, Guard
from maskwright.serving.pages import DOCS_PATHS, Playground, add_docs
from maskwright.serving.pipelines import Pipeline, Query
from maskwright.serving.schemas import (
    ERROR_RESPONSES,
    OPENAI_ERROR_RESPONSES,
    OPENAI_PREFIX,
    RESPONSES,
    Embeddings,
    EmbedRequest,
    FillMaskParameters,
    Health,
    InferenceRequest,
    OpenAIEmbeddingRequest,
    OpenAIEmbeddingResponse,
    OpenAIModel,
    OpenAIModelList,
    RequestModel,
    Responses,
    ScoredText,
    ScoreRequest,
    SimilarityRequest,
    TaskResult,
    TextClassificationParameters,
    TextPair,
    TokenClassificationParameters,
    ValueRefusedError,
    add_error_handlers,
)

_BATCH_TOKENS = 16_384  # of a forward pass; a single text may have more
_OPENAI_EMBEDDINGS = f"{OPENAI_PREFIX}embeddings"
_OPENAI_MODELS = f"{OPENAI_PREFIX}models"
_MAX_SHOWN_NAME = 100  # characters
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_OTHER = "other"  # the label of unknown paths, of which clients could make up any number


class Metrics:
    """Counters and histograms for Prometheus, at /metrics.

    Args:
        paths: the paths that have a label of their own.
        count_queued: returns the number of texts in the queues.
    """

    def __init__(self, paths: tuple[str, ...], count_queued: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self._paths = frozenset(paths)
        self._requests = Counter(
            "maskwright_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "maskwright_request_seconds",
            "Time from a request to its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "maskwright_batch_texts",
            "Texts that went through the model together.",
            buckets=_BATCHES,
            registry=self.registry,
        )
        waiting = Gauge("maskwright_waiting_texts", "Texts that wait.", registry=self.registry)
        waiting.set_function(count_queued)

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        label = path if path in self._paths else _OTHER
        self._requests.labels(label, str(status)).inc()
        self._seconds.labels(label).observe(seconds)


class Service:
    """A model with its queues, and the handlers of its routes."""

    def __init__(self, name: str, pipeline: Pipeline[Any], config: ServeConfig) -> None:
        self.name, self.pipeline, self.config = name, pipeline, config
        self.started = int(time.time())
        paths = ("/", f"/models/{name}", "/embed", "/similarity", "/score", "/health", "/metrics")
        openai_paths = (_OPENAI_EMBEDDINGS, _OPENAI_MODELS, f"{_OPENAI_MODELS}/{name}")
        self.batcher = Batcher(
            max_batch=config.max_batch,
            max_batch_cost=_BATCH_TOKENS,
            max_wait_seconds=config.max_wait_ms / 1e3,
            max_queued=config.max_queued,
            observe=lambda size: self.metrics.batches.observe(size),
        )
        self.metrics = Metrics((*paths, *openai_paths), lambda: self.batcher.num_queued)

    @asynccontextmanager
    async def run(self, app: FastAPI) -> AsyncGenerator[None]:
        """Run the batcher as long as the server runs."""
        self.batcher.start()
        yield
        await self.batcher.stop()

    async def fill_mask(self, request: InferenceRequest[FillMaskParameters]) -> Any:
        """Fill the masks of one text, or of each in a list."""
        return await self._answer(request, FillMaskParameters())

    async def classify_texts(self, request: InferenceRequest[TextClassificationParameters]) -> Any:
        """Label one text or pair, or each in a list."""
        return await self._answer(request, TextClassificationParameters())

    async def classify_tokens(
        self, request: InferenceRequest[TokenClassificationParameters]
    ) -> Any:
        """Tag the words, or find the entities, of one text, or of each in a list."""
        return await self._answer(request, TokenClassificationParameters())

    @property
    def task_handler(self) -> Callable[..., Awaitable[Any]]:
        """The handler of the model's task."""
        handlers = {
            "fill-mask": self.fill_mask,
            "feature-extraction": self.embed,
            "text-classification": self.classify_texts,
            "token-classification": self.classify_tokens,
        }
        return handlers[self.pipeline.task]

    async def _answer(
        self, request: InferenceRequest[Any], default: RequestModel
    ) -> TaskResult | list[TaskResult]:
        inputs, parameters = request.inputs, request.parameters or default
        is_single = isinstance(inputs, str | TextPair)
        queries = [
            Query(one, None, parameters)
            if isinstance(one, str)
            else Query(one.text, one.text_pair, parameters)
            for one in ([inputs] if is_single else inputs)
        ]
        self.pipeline.check(queries, self.config)
        texts = [f"{one.text} {one.text_pair}" if one.text_pair else one.text for one in queries]
        # Texts whose words are tagged are cut into parts, which are all computed.
        is_cut = self.pipeline.task != "token-classification"
        longest = self.pipeline.longest if is_cut else None
        results = await self._process(self.pipeline, queries, texts, longest)
        # As in Hugging Face's API, the labels of a single text are a list in a list.
        is_nested = not is_single or self.pipeline.task == "text-classification"
        return results if is_nested else results[0]

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Embed each text."""
        embeddings = await self._embed(_as_list(request.inputs), request.prompt_name)
        return [_cut(one, len(one)) for one in embeddings] if request.normalize else embeddings

    async def _embed(self, texts: Sequence[str], prompt_name: str | None = None) -> Embeddings:
        prompted = self._add_prompt(texts, prompt_name)
        return await self._process(self.pipeline.embed, prompted, prompted, self._longest)

    def _add_prompt(self, texts: Sequence[str], prompt_name: str | None = None) -> list[str]:
        prompt = self.pipeline.embedder.settings.find_prompt(prompt_name)
        return [prompt + text for text in texts]

    async def compare(self, request: SimilarityRequest) -> list[float]:
        """Return the similarity of the source sentence's embedding and that of each sentence: the
        cosine, unless the model states another.
        """
        # The source is last, so that errors number the sentences as the request does.
        texts = [*request.inputs.sentences, request.inputs.source_sentence]
        embedder = self.pipeline.embedder
        embeddings = embedder.comparable(np.asarray(await self._embed(texts), np.float32))
        return embedder.compare(embeddings[:-1], embeddings[-1:])[:, 0].tolist()

    async def show_model(self) -> OpenAIModel:
        """Describe the model, in OpenAI's format."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.started,
            "owned_by": "maskwright",
        }

    async def list_models(self) -> OpenAIModelList:
        """List the one model that is served, in OpenAI's format."""
        return {"object": "list", "data": [await self.show_model()]}

    async def embed_openai(self, request: OpenAIEmbeddingRequest) -> OpenAIEmbeddingResponse:
        """Embed each text, in OpenAI's format."""
        if request.model != self.name:
            model = request.model[:_MAX_SHOWN_NAME]
            raise InputError(f"model = {model!r} is not served here. Use {self.name}.")
        self._check_dimensions(request.dimensions)
        texts = self._add_prompt(_as_list(request.input))
        async with asyncio.timeout(self.config.answer_seconds):
            counts = await self._count_tokens(texts, self._longest)
            embeddings = await self._compute(self.pipeline.embed, texts, counts)
        if request.dimensions not in (None, self.pipeline.embedder.width):
            embeddings = [_cut(one, request.dimensions) for one in embeddings]
        in_base64 = request.encoding_format == "base64"
        return {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": _encode_base64(one) if in_base64 else one,
                }
                for index, one in enumerate(embeddings)
            ],
            "model": self.name,
            "usage": {"prompt_tokens": sum(counts), "total_tokens": sum(counts)},
        }

    def _check_dimensions(self, given: int | None) -> None:
        """Raise ValueRefusedError unless embeddings may be cut to this size."""
        width, trained = self.pipeline.embedder.width, self.pipeline.dimensions
        if given not in (None, width, *trained):
            sizes = " or ".join(map(str, sorted({*trained, width})))
            raise ValueRefusedError(f"dimensions = {given} must be {sizes} for this model.")

    async def score(self, request: ScoreRequest) -> list[ScoredText]:
        """Score each token of each text by its log-probability: one forward pass per token."""
        texts = _as_list(request.inputs)
        mask = self.pipeline.embedder.tokenizer.mask_token
        for number, text in enumerate(texts):
            if mask in text:  # it would be tokenized as ordinary characters
                field = f"inputs[{number}]" if len(texts) > 1 else "inputs"
                raise InputError(
                    f"{field} contains {mask}, which has no score. Send complete texts; to fill "
                    "masks use POST /."
                )
        longest = self.pipeline.longest
        return await self._process(self.pipeline.score, texts, texts, longest, power=2)

    async def check_health(self) -> JSONResponse:
        """Report whether the server works, and what it serves; with status 503 if it does not."""
        is_hung = self.batcher.busy_seconds > self.config.answer_seconds
        is_working = not is_hung and self.batcher.is_working
        health: Health = {
            "status": "ok" if is_working else "not working",
            "model": self.name,
            "task": self.pipeline.task,
            "scores": self.pipeline.scorer is not None,
        }
        return JSONResponse(health, 200 if is_working else 503)

    @property
    def _longest(self) -> int:
        return self.pipeline.embedder.longest

    async def _process(
        self,
        compute: Compute[Item, Result],
        items: Sequence[Item],
        texts: Sequence[str],
        longest: int | None,
        power: int = 1,
    ) -> list[Result]:
        """Return the results of items; an item costs the tokens of its text to the `power`."""
        async with asyncio.timeout(self.config.answer_seconds):
            counts = await self._count_tokens(texts, longest)
            return await self._compute(compute, items, [count**power for count in counts])

    async def _count_tokens(self, texts: Sequence[str], longest: int | None) -> list[int]:
        """Return the number of tokens of each text, computed off the event loop."""
        if len(texts) > self.config.max_texts:
            raise InputError(
                f"the request has {len(texts)} texts; at most {self.config.max_texts} are allowed."
            )
        return await asyncio.to_thread(self.pipeline.count_tokens, texts, longest)

    async def _compute(
        self, compute: Compute[Item, Result], items: Sequence[Item], costs: Sequence[int]
    ) -> list[Result]:
        if sum(costs) > self.config.max_tokens:
            raise InputError(
                f"the request takes {sum(costs):,} tokens in the model; at most "
                f"{self.config.max_tokens:,} are allowed. Send fewer or shorter texts."
            )
        results: list[Result] = []
        for number, result in enumerate(await self.batcher.submit(compute, items, costs)):
            if isinstance(result, InputError):
                where = f"inputs[{number}]: " if len(items) > 1 else ""
                raise InputError(f"{where}{result}")
            if isinstance(result, BaseException):
                raise result
            results.append(result)
        return results


def _as_list(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


def _cut(embedding: list[float], size: int) -> list[float]:
    """Return the first dimensions of an embedding, scaled to length 1."""
    found = np.asarray(embedding[:size])
    return (found / (np.linalg.norm(found) or 1.0)).tolist()


def _encode_base64(embedding: list[float]) -> str:
    return base64.b64encode(np.asarray(embedding, "<f4").tobytes()).decode()


def build_app(
    name: str,
    pipeline: Pipeline[Any],
    config: ServeConfig,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
) -> ASGIApp:
    """Return the whole server as an ASGI application."""
    service = Service(name, pipeline, config)
    playground = Playground(name, pipeline, needs_token=token is not None)
    app = FastAPI(
        title=f"maskwright: {name}",
        docs_url=None,  # FastAPI's page loads scripts from another server: see add_docs
        redoc_url=None,
        redirect_slashes=False,  # behind TLS the client would send the text again, unencrypted
        lifespan=service.run,
        responses=ERROR_RESPONSES,
        # The guard checks the token; this makes /openapi.json, and /docs with it, say so.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token is not None else [],
    )
    add_error_handlers(app)
    add_docs(app)

    def add_post(path: str, handler: Any, model: Any, errors: Responses | None = None) -> None:
        # The model is for /openapi.json only: pydantic does not validate responses again.
        responses: Responses = {200: {"model": model}, **(errors or {})}
        app.post(path, response_model=None, responses=responses)(handler)

    for path in ("/", f"/models/{name}"):
        add_post(path, service.task_handler, RESPONSES[pipeline.task])
    add_post("/embed", service.embed, Embeddings)
    add_post("/similarity", service.compare, list[float])
    errors = OPENAI_ERROR_RESPONSES
    add_post(_OPENAI_EMBEDDINGS, service.embed_openai, OpenAIEmbeddingResponse, errors)
    app.get(_OPENAI_MODELS, response_model=OpenAIModelList, responses=errors)(service.list_models)
    app.get(f"{_OPENAI_MODELS}/{name}", response_model=OpenAIModel, responses=errors)(
        service.show_model
    )
    if pipeline.scorer is not None:
        add_post("/score", service.score, list[ScoredText])
    app.get("/health", response_model=Health)(service.check_health)
    app.head("/health", include_in_schema=False)(service.check_health)  # for load balancers

    @app.head("/", include_in_schema=False)
    @app.get("/", response_class=HTMLResponse)
    async def show_playground() -> Response:
        """Show the playground; the documentation if there is nothing to predict."""
        if pipeline.task == "feature-extraction":
            return RedirectResponse(DOCS_PATHS[0].removeprefix("/"))  # for a proxy with a prefix
        return HTMLResponse(playground.html)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Report metrics for Prometheus."""
        return Response(
            generate_latest(service.metrics.registry), media_type="text/plain; version=0.0.4"
        )

    hosts = AllowedHosts(config.host, allowed_hosts)
    observe = service.metrics.observe_request
    return Guard(app, config, playground.policy, token, observe, hosts)
