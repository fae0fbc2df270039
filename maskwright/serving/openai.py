"""The parts of OpenAI's API that an encoder can answer: the form of errors, and embeddings."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Discriminator, Field, Tag

from maskwright.serving.forms import Form, Text

PREFIX = "/v1/"  # of the paths that are OpenAI's
_TEXT, _LIST = "<text>", "<list>"
_NO_TEXT = "must be a text or a list of texts; token ids are not taken"


def _find_kind(given: Any) -> str | None:
    """Return the kind of an ``input``, None for token ids and what is neither."""
    if isinstance(given, str):
        return _TEXT
    if isinstance(given, list) and not any(isinstance(one, int | list) for one in given):
        return _LIST
    return None


class EmbeddingRequest(Form):
    """Texts for vectors, as OpenAI's clients send them; `user` changes nothing."""

    input: Annotated[
        Annotated[Text, Tag(_TEXT)] | Annotated[list[Text], Field(min_length=1), Tag(_LIST)],
        Discriminator(_find_kind, "no_text", _NO_TEXT),
    ]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class Embedding(BaseModel):
    """The vector of one text: numbers, or their bytes (float32, little-endian) in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that went through the model, [CLS] and [SEP] among them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingAnswer(BaseModel):
    """The vectors of a request, in the order of its texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class OpenAIError(BaseModel):
    """Why a request was not answered."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIRefusal(BaseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIError


def describe_error(path: str, status: int, reason: str) -> dict[str, Any]:
    """Return the body of an error: ``{"error": reason}``, or OpenAI's form on its paths."""
    if not path.startswith(PREFIX):
        return {"error": reason}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = {401: "invalid_api_key", 404: "not_found", 503: "overloaded"}.get(status)
    return {"error": {"message": reason, "type": kind, "param": None, "code": code}}


def describe_vectors(
    model: str, vectors: Sequence[list[float]], counts: Sequence[int], *, in_base64: bool
) -> dict[str, Any]:
    """Return the answer to an `EmbeddingRequest`; `counts` are the tokens of each text."""
    data = [
        {"object": "embedding", "index": index, "embedding": _encode(one) if in_base64 else one}
        for index, one in enumerate(vectors)
    ]
    usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _encode(vector: list[float]) -> str:
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
