"""The routes: the model's task, embeddings, token scores, health, metrics and pages."""

import asyncio
import base64
import json
import operator
import signal
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic
from urllib.parse import quote

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
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maskwright.console import tell
from maskwright.errors import InputError, MaskwrightError
from maskwright.serving.batcher import Batcher, Compute, Item, Result
from maskwright.serving.config import ServeConfig
from maskwright.serving.guard import ERROR_LOG, AllowedHosts, Guard
from maskwright.serving.metrics import Metrics
from maskwright.serving.pages import DOCS_PATHS, Playground, add_docs
from maskwright.serving.pipelines import Pipeline, Query
from maskwright.serving.schemas import (
    CUT_HEADER,
    ERROR_RESPONSES,
    MODEL_HEADER,
    OPENAI_ERROR_RESPONSES,
    OPENAI_PREFIX,
    RESPONSES,
    SHA_HEADER,
    Embeddings,
    EmbedRequest,
    FillMaskParameters,
    Health,
    InferenceRequest,
    OpenAIEmbedding,
    OpenAIEmbeddingRequest,
    OpenAIEmbeddingResponse,
    OpenAIModel,
    OpenAIModelList,
    RequestModel,
    Responses,
    ScoredText,
    ScoreRequest,
    SimilarityRequest,
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
_CUT = {
    CUT_HEADER: {
        "description": "Texts of which only the beginning was read.",
        "schema": {"type": "integer"},
    }
}


_PIPELINE: ContextVar[Pipeline[Any]] = ContextVar("pipeline")
_dump = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True)
class Answers(Generic[Result]):
    """The results of a request, the tokens that were read for them, and the texts that were cut."""

    results: list[Result]
    num_tokens: int
    num_cut: int


class Service:
    """A model, which may be replaced, with its queue, and the handlers of its routes.

    Args:
        reopen: opens the model again, to replace the one that is served on SIGUSR1.
    """

    def __init__(
        self,
        name: str,
        pipeline: Pipeline[Any],
        config: ServeConfig,
        *,
        needs_token: bool = False,
        reopen: Callable[[], Pipeline[Any]] | None = None,
    ) -> None:
        self.name, self.config, self.needs_token, self._reopen = name, config, needs_token, reopen
        self.started = int(time.time())
        paths = ("/", f"/models/{name}", "/embed", "/similarity", "/score", "/health", "/metrics")
        openai_paths = (_OPENAI_EMBEDDINGS, _OPENAI_MODELS, f"{_OPENAI_MODELS}/{name}")
        self.metrics = Metrics((*paths, *openai_paths), lambda: self.batcher.num_queued)
        self.batcher = Batcher(
            max_batch=config.max_batch,
            max_batch_cost=_BATCH_TOKENS,
            max_wait_seconds=config.max_wait_ms / 1e3,
            max_queued=config.max_queued,
            observe=self.metrics.observe_batch,
        )
        self.use(pipeline)

    def use(self, pipeline: Pipeline[Any]) -> None:
        """Serve this model from the next request on."""
        self.playground = Playground(self.name, pipeline, needs_token=self.needs_token)
        self.metrics.name_model(self.name, pipeline)
        self._served = pipeline

    @property
    def pipeline(self) -> Pipeline[Any]:
        """The model of this request: the one that was served when the request began."""
        return _PIPELINE.get(self._served)

    @asynccontextmanager
    async def run(self, app: FastAPI) -> AsyncGenerator[None]:
        """Run the batcher as long as the server runs, and replace the model when it is asked."""
        self.batcher.start()
        replacing = asyncio.create_task(self._replace_on_signal())
        yield
        replacing.cancel()
        await self.batcher.stop()

    async def _replace_on_signal(self) -> None:
        if self._reopen is None or threading.current_thread() is not threading.main_thread():
            return  # Python gives signals to its main thread only
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        while True:
            await asked.wait()
            asked.clear()
            try:
                self._check_task(pipeline := await asyncio.to_thread(self._reopen))
            except MaskwrightError as error:
                tell(f"the model stays the one of before, {self._served.sha256[:12]}: {error}")
            except Exception:
                ERROR_LOG.exception(
                    "the model stays the one of before, %s", self.pipeline.sha256[:12]
                )
            else:
                self.use(pipeline)
                tell(f"serving {self.name} ({pipeline.title}) from now on")

    def _check_task(self, pipeline: Pipeline[Any]) -> None:
        if pipeline.task != self._served.task:
            raise InputError(
                f"task = {pipeline.task} of the new model must be {self._served.task}, as clients "
                "expect it. Start another server."
            )

    def pin_model(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose requests keep their model until they are answered.

        Headers of the response name it.
        """

        async def run(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            pipeline = self._served
            _PIPELINE.set(pipeline)

            async def send_with_model(message: Message) -> None:
                if message["type"] == "http.response.start":
                    headers = MutableHeaders(scope=message)
                    headers[MODEL_HEADER], headers[SHA_HEADER] = quote(self.name), pipeline.sha256
                await send(message)

            await app(scope, receive, send_with_model)

        return run

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

    async def _answer(self, request: InferenceRequest[Any], default: RequestModel) -> Response:
        inputs, parameters = request.inputs, request.parameters or default
        is_single = isinstance(inputs, str | TextPair)
        queries = [
            Query(one, None, parameters)
            if isinstance(one, str)
            else Query(one.text, one.text_pair, parameters)
            for one in ([inputs] if is_single else inputs)
        ]
        pipeline = self.pipeline
        pipeline.check(queries, self.config)
        count, longest = pipeline.count_query_tokens, pipeline.longest_input
        answers = await self._process(pipeline, queries, count, longest)
        # As in Hugging Face's API, the labels of a single text are a list in a list.
        is_nested = not is_single or pipeline.task == "text-classification"
        results = answers.results
        return await _respond(answers, lambda: _dump_list(results if is_nested else results[0]))

    async def embed(self, request: EmbedRequest) -> Response:
        """Embed each text."""
        answers = await self._embed(_as_list(request.inputs), request.prompt_name)

        def show_all() -> str:
            vectors = answers.results
            return _dump_list([_cut(v, len(v)) for v in vectors] if request.normalize else vectors)

        return await _respond(answers, show_all)

    async def compare(self, request: SimilarityRequest) -> Response:
        """Return the similarity of the source sentence's embedding and that of each sentence: the
        cosine, unless the model states another.
        """
        # The source is last, so that errors number the sentences as the request does.
        embedder = self.pipeline.embedder
        answers = await self._embed([*request.inputs.sentences, request.inputs.source_sentence])

        def show_all() -> str:
            vectors = embedder.comparable(np.asarray(answers.results, np.float32))
            return _dump(embedder.compare(vectors[:-1], vectors[-1:])[:, 0].tolist())

        return await _respond(answers, show_all)

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

    async def embed_openai(self, request: OpenAIEmbeddingRequest) -> Response:
        """Embed each text, in OpenAI's format."""
        if request.model != self.name:
            model = request.model[:_MAX_SHOWN_NAME]
            raise InputError(f"model = {model!r} is not served here. Use {self.name}.")
        self._check_dimensions(request.dimensions)
        answers, width = await self._embed(_as_list(request.input)), request.dimensions
        encode = _encode_base64 if request.encoding_format == "base64" else list[float]

        def show(index: int, vector: list[float]) -> OpenAIEmbedding:
            vector = vector if width in (None, len(vector)) else _cut(vector, width)
            return {"object": "embedding", "index": index, "embedding": encode(vector)}

        def show_all() -> str:
            data = _dump_list(show(*each) for each in enumerate(answers.results))
            usage = {"prompt_tokens": answers.num_tokens, "total_tokens": answers.num_tokens}
            rest = _dump({"model": self.name, "usage": usage})
            return f'{{"object":"list","data":{data},{rest[1:]}'

        return await _respond(answers, show_all)

    def _check_dimensions(self, given: int | None) -> None:
        """Raise ValueRefusedError unless embeddings may be cut to this size."""
        width, trained = self.pipeline.embedder.width, self.pipeline.dimensions
        if given not in (None, width, *trained):
            sizes = " or ".join(map(str, sorted({*trained, width})))
            raise ValueRefusedError(f"dimensions = {given} must be {sizes} for this model.")

    async def score(self, request: ScoreRequest) -> Response:
        """Score each token of each text by its log-probability: one forward pass per token."""
        texts, pipeline = _as_list(request.inputs), self.pipeline
        mask = pipeline.embedder.tokenizer.mask_token
        for number, text in enumerate(texts):
            if mask in text:  # it would be tokenized as ordinary characters
                field = f"inputs[{number}]" if len(texts) > 1 else "inputs"
                raise InputError(
                    f"{field} contains {mask}, which has no score. Send complete texts; to fill "
                    "masks use POST /."
                )
        longest = pipeline.longest
        scored = await self._process(pipeline.score, texts, pipeline.count_tokens, longest, power=2)
        return await _respond(scored, lambda: _dump_list(scored.results))

    async def check_health(self) -> JSONResponse:
        """Report whether the server works, and what it serves; with status 503 if it does not."""
        is_hung = self.batcher.busy_seconds > self.config.answer_seconds
        is_working = not is_hung and self.batcher.is_working
        health: Health = {
            "status": "ok" if is_working else "not working",
            "model": self.name,
            "sha256": self.pipeline.sha256,
            "task": self.pipeline.task,
            "scores": self.pipeline.scorer is not None,
        }
        return JSONResponse(health, 200 if is_working else 503)

    async def show_metrics(self) -> Response:
        """Report metrics for Prometheus."""
        return Response(self.metrics.show(), media_type="text/plain; version=0.0.4")

    async def show_playground(self) -> Response:
        """Show the playground; the documentation if the model has no answer to show."""
        if self.pipeline.task == "feature-extraction":
            return RedirectResponse(DOCS_PATHS[0].removeprefix("/"))  # for a proxy with a prefix
        return HTMLResponse(self.playground.html)

    async def _embed(
        self, texts: Sequence[str], prompt_name: str | None = None
    ) -> Answers[list[float]]:
        pipeline = self.pipeline
        prompt = pipeline.embedder.settings.find_prompt(prompt_name)
        prompted, longest = [prompt + text for text in texts], pipeline.embedder.longest
        return await self._process(pipeline.embed, prompted, pipeline.count_tokens, longest)

    async def _process(
        self,
        compute: Compute[Item, Result],
        items: Sequence[Item],
        count_tokens: Callable[[Sequence[Item]], list[int]],
        longest: int | None,
        power: int = 1,
    ) -> Answers[Result]:
        """Return the results of items, of which the model reads at most `longest` tokens.

        An item costs its tokens to the `power`.
        """
        if len(items) > self.config.max_texts:
            raise InputError(
                f"the request has {len(items)} texts; at most {self.config.max_texts} are allowed."
            )
        async with asyncio.timeout(self.config.answer_seconds):
            counts = await asyncio.to_thread(count_tokens, items)
            read = [count if longest is None else min(count, longest) for count in counts]
            results = await self._compute(compute, items, [count**power for count in read])
        num_cut = sum(map(operator.ne, counts, read))
        self.metrics.count_texts(len(items), num_cut)
        return Answers(results, sum(read), num_cut)

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


async def _respond(answers: Answers[Any], dump: Callable[[], str]) -> Response:
    """Return a response whose JSON is made off the event loop, with the number of cut texts."""
    content = await asyncio.to_thread(dump)
    headers = {CUT_HEADER: str(answers.num_cut)}
    return Response(content, headers=headers, media_type="application/json")


def _dump_list(values: Iterable[Any]) -> str:
    """Return a list as JSON, one value after the other, so that other threads run in between."""
    return f"[{','.join(map(_dump, values))}]"


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
    reopen: Callable[[], Pipeline[Any]] | None = None,
) -> ASGIApp:
    """Return the whole server as an ASGI application; `reopen` as in `Service`."""
    service = Service(name, pipeline, config, needs_token=token is not None, reopen=reopen)
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
        responses: Responses = {200: {"model": model, "headers": _CUT}, **(errors or {})}
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

    app.get("/", response_class=HTMLResponse)(service.show_playground)
    app.head("/", include_in_schema=False)(service.show_playground)
    app.get("/metrics", response_class=PlainTextResponse)(service.show_metrics)
    hosts = AllowedHosts(config.host, allowed_hosts)
    observe = service.metrics.observe_request
    policy = service.playground.policy  # the same for all models
    return Guard(service.pin_model(app), config, policy, token, observe, hosts)
