"""Requests, responses and errors: Hugging Face's inference API, OpenAI's embeddings under /v1/.

Requests are pydantic models, which check them. Responses are TypedDicts: what the server returns,
and what /openapi.json says about it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from maskwright.errors import InputError, MaskwrightError, ModelFolderError
from maskwright.files import JsonObject
from maskwright.serving.batcher import QueueFullError

# On Python 3.11 pydantic takes no TypedDict of the standard library.


TaskName = Literal["fill-mask", "feature-extraction", "text-classification", "token-classification"]
AggregationStrategy = Literal["none", "simple", "first", "average", "max"]
Text = Annotated[str, Field(max_length=100_000)]  # models read a few thousand at most
INPUT_TAGS: dict[type, str] = {str: "<text>", dict: "<pair>", list: "<list>"}


class RequestModel(BaseModel):
    """A JSON object; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


def _tag_input(data: object) -> str | None:
    return INPUT_TAGS.get(type(data))


def _discriminate(message: str) -> Discriminator:
    """Tell texts, pairs and lists apart by their JSON type; `message` says what is allowed."""
    return Discriminator(_tag_input, "no_text", message)


class TextPair(RequestModel):
    """A pair of texts, for a model that was trained on pairs."""

    text: Text
    text_pair: Text | None = None


class FillMaskParameters(RequestModel):
    """How many candidates a mask gets, and from which words."""

    top_k: int | None = Field(default=None, ge=1)
    targets: list[Text] | None = Field(default=None, min_length=1, max_length=1000)


class TextClassificationParameters(RequestModel):
    """How many labels a text gets; any function but that of the model's task is an error."""

    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class TokenClassificationParameters(RequestModel):
    """Words or entities; `stride` has no effect, because parts of long texts do not overlap."""

    aggregation_strategy: AggregationStrategy | None = None
    ignore_labels: list[Text] | None = Field(default=None, max_length=1000)
    stride: int | None = Field(default=None, ge=0)


Parameters = TypeVar("Parameters", bound=RequestModel)
_TextTag, _PairTag, _ListTag = (Tag(name) for name in INPUT_TAGS.values())
_PAIR = 'for models of text pairs, {"text": …, "text_pair": …}'
_Input = Annotated[
    Annotated[Text, _TextTag] | Annotated[TextPair, _PairTag],
    _discriminate(f"must be a string, or, {_PAIR}"),
]
_Inputs = Annotated[
    Annotated[Text, _TextTag] | Annotated[TextPair, _PairTag] | Annotated[list[_Input], _ListTag],
    _discriminate(f"must be a string, a list of strings, or, {_PAIR}"),
]


class InferenceRequest(RequestModel, Generic[Parameters]):
    """A request for the model's task; `options` of Hugging Face's service have no effect."""

    inputs: _Inputs
    parameters: Parameters | None = None
    options: JsonObject | None = None


class ScoreRequest(RequestModel):
    """Texts whose tokens are scored."""

    inputs: Annotated[
        Annotated[Text, _TextTag] | Annotated[list[Text], _ListTag],
        _discriminate("must be a string or a list of strings"),
    ]


class EmbedRequest(ScoreRequest):
    """Texts to embed, with the options of text-embeddings-inference.

    `normalize`: scale to length 1; default: as the model states. `prompt_name`: the prompt of the
    model to put before each text. The others have one value.
    """

    normalize: Literal[True] | None = None
    prompt_name: Text | None = None
    truncate: Literal[True] | None = None
    truncation_direction: Literal["right"] | None = None
    encoding_format: Literal["float"] | None = None


class SentencesToCompare(RequestModel):
    """A sentence, and those that it is compared with."""

    source_sentence: Text
    sentences: list[Text]


class SimilarityRequest(RequestModel):
    """Sentences to compare, as Hugging Face's client sends them; there are no parameters."""

    inputs: SentencesToCompare
    parameters: RequestModel | None = None
    options: JsonObject | None = None


def _tag_openai_input(data: object) -> str | None:
    """Return the tag of an ``input``; None for token ids and other types."""
    if isinstance(data, list):
        data = cast(list[object], data)
        return None if any(isinstance(one, int | list) for one in data) else INPUT_TAGS[list]
    return _tag_input(data)


class OpenAIEmbeddingRequest(RequestModel):
    """Texts to embed, as OpenAI's clients send them; `user` has no effect."""

    input: Annotated[
        Annotated[Text, _TextTag] | Annotated[list[Text], Field(min_length=1), _ListTag],
        Discriminator(
            _tag_openai_input,
            "no_text",
            "must be a string or a list of strings; token ids are not supported (LangChain: set "
            "check_embedding_ctx_length=False)",
        ),
    ]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class MaskCandidate(TypedDict):
    """A token for a mask, its probability, and the text with it."""

    score: float
    token: int
    token_str: str
    sequence: str


class LabelScore(TypedDict):
    """A label of a text and its probability; for a regression the predicted value."""

    label: str
    score: float


class TaggedWord(TypedDict):
    """A word and its tag; `start` and `end` are character offsets in the text."""

    entity: str
    score: float
    index: int
    word: str
    start: int
    end: int


class EntityGroup(TypedDict):
    """An entity of one or more words; `start` and `end` are character offsets in the text."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class ScoredToken(TypedDict):
    """A token, its character offsets in the text, and its log-probability in nats."""

    token: str
    start: int
    end: int
    score: float


class ScoredText(TypedDict):
    """The pseudo-log-likelihood of a text, in nats, its mean over the tokens, and the tokens."""

    score: float
    mean: float | None
    tokens: list[ScoredToken]


class Health(TypedDict):
    """The state of the server, its model, and the availability of /score."""

    status: Literal["ok", "not working"]
    model: str
    sha256: str
    task: TaskName
    scores: bool


class ErrorResponse(TypedDict):
    """The reason why a request was refused, on one line."""

    error: str


class OpenAIEmbedding(TypedDict):
    """The embedding of one text: numbers, or their bytes (float32, little-endian) in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(TypedDict):
    """The number of tokens in the model, with special tokens."""

    prompt_tokens: int
    total_tokens: int


class OpenAIEmbeddingResponse(TypedDict):
    """The embeddings of a request, in the order of its texts."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage


class OpenAIModel(TypedDict):
    """The model that is served; `created` is the second since 1970 in which the server started."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModelList(TypedDict):
    """The one model that is served."""

    object: Literal["list"]
    data: list[OpenAIModel]


class OpenAIError(TypedDict):
    """The reason why a request under /v1/ was refused."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str | None


class OpenAIErrorResponse(TypedDict):
    """An error in OpenAI's format."""

    error: OpenAIError


Embeddings = list[list[float]]
FillMaskResult: TypeAlias = list[MaskCandidate] | list[list[MaskCandidate]]  # one mask, several
TokenClassificationResult: TypeAlias = list[TaggedWord] | list[EntityGroup]
# Of a text.
TaskResult: TypeAlias = FillMaskResult | list[LabelScore] | TokenClassificationResult | list[float]
RESPONSES: dict[TaskName, Any] = {
    "fill-mask": FillMaskResult | list[FillMaskResult],
    "feature-extraction": Embeddings,
    "text-classification": list[list[LabelScore]],
    "token-classification": TokenClassificationResult | list[TokenClassificationResult],
}


OPENAI_PREFIX = "/v1/"
# Headers of responses: the name of the model, percent-encoded, its sha256, and the number of texts
# of which only the beginning was read.
MODEL_HEADER, SHA_HEADER, CUT_HEADER = "x-model", "x-model-sha256", "x-cut-texts"
RETRY_SECONDS = 1  # ``Retry-After`` of an overloaded server
INTERNAL_ERROR = "internal error; the server log has the traceback"
# Clients that retry at once compete with the model for the interpreter: without this delay a flood
# of refusals leaves almost no throughput (research/experiments.md).
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
_PYDANTIC_REASONS = {
    "missing": "is missing",
    "string_type": "must be a string",
    "extra_forbidden": "is not a known field",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
}
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
        is_ours = isinstance(error, ModelFolderError)
        status = 500 if is_ours else 400 if isinstance(error, ValueRefusedError) else 422
        return respond(request, status, str(error))

    @app.exception_handler(QueueFullError)
    async def handle_full_queue(request: Request, error: QueueFullError) -> JSONResponse:
        await asyncio.sleep(_REFUSAL_SECONDS)
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return respond(request, 503, "too many texts are waiting; try again later", headers)

    @app.exception_handler(TimeoutError)
    async def handle_timeout(request: Request, error: TimeoutError) -> JSONResponse:
        return respond(request, 504, "the answer took too long. Send fewer or shorter texts.")

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
