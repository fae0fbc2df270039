"""Embeddings as OpenAI's clients ask for them."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from maskwright.inference.embed import Embedder
from maskwright.serving.config import ServeConfig
from maskwright.serving.openai import EmbeddingAnswer, OpenAIRefusal
from tests.serving.test_app import SMALL, serve

PATH = "/v1/embeddings"
TEXTS = ["The fox eats berries.", "The cat eats fish. " * 20]  # the second is cut


@pytest.fixture(scope="module")
def folder(workplace: Path) -> Path:
    return workplace / "runs" / "small" / "model"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with serve(folder) as client:
        yield client


def ask(client: TestClient, **body: Any) -> Any:
    return client.post(PATH, json={"model": "small", **body})


def test_vectors_are_those_of_embed_with_the_tokens_that_were_used(
    client: TestClient, folder: Path
) -> None:
    embed = Embedder(folder, "cpu")
    answer = ask(client, input=TEXTS, dimensions=embed.width, user="somebody").json()
    EmbeddingAnswer.model_validate(answer, strict=True)
    assert [one["index"] for one in answer["data"]] == [0, 1]
    vectors = np.array([one["embedding"] for one in answer["data"]], np.float32)
    assert vectors == pytest.approx(embed(TEXTS), abs=1e-6)
    [short, _] = embed.tokenizer.encode_batch(TEXTS)
    count = len(embed.wrap(short.ids.tolist())) + embed.longest
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert answer["model"] == "small"


def test_base64_holds_the_same_numbers(client: TestClient) -> None:
    [expected] = ask(client, input=TEXTS[0]).json()["data"]
    [found] = ask(client, input=TEXTS[0], encoding_format="base64").json()["data"]
    numbers = np.frombuffer(base64.b64decode(found["embedding"]), "<f4")
    assert numbers.tolist() == expected["embedding"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": [1, 2]}, "input"),
        ({"input": [[1, 2], [3]]}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": 5}, "input"),
        ({}, "input"),
        ({"input": "a", "model": None}, "model"),
        ({"input": "a", "model": "other"}, "model = 'other'"),
        ({"input": "a", "dimensions": 5}, "dimensions = 5"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "truncate": True}, "the request: 'truncate'"),
        ({"input": ["a"] * 5}, "the request has 5 texts"),
    ],
)
def test_what_is_wrong_is_one_line_in_the_form_of_openai(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    answer = ask(client, **body)
    assert answer.status_code == 422
    error = OpenAIRefusal.model_validate(answer.json(), strict=True).error
    assert error.message.startswith(field)
    assert "\n" not in error.message
    assert error.type == "invalid_request_error"


def test_every_error_of_these_paths_has_that_form(folder: Path) -> None:
    right = {"authorization": "Bearer secret"}
    late = ServeConfig(answer_seconds=0.01, max_wait_ms=500)
    with serve(folder, token="secret") as client, serve(folder, late) as slow:
        answers = {
            401: ask(client, input="a"),
            400: client.post(PATH, content=b"{", headers=right),
            404: client.get("/v1/models", headers=right),
            405: client.get(PATH, headers=right),
            413: client.post(PATH, content=b"x" * (SMALL.max_body_bytes + 1), headers=right),
            504: ask(slow, input="a"),
        }
    for status, answer in answers.items():
        assert answer.status_code == status
        error = OpenAIRefusal.model_validate(answer.json(), strict=True).error
        assert error.type == ("server_error" if status == 504 else "invalid_request_error")


def test_the_document_has_that_form(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["responses"]
    assert "EmbeddingAnswer" in json.dumps(described["200"])
    for status in ("401", "422", "504"):
        assert "OpenAIRefusal" in json.dumps(described[status])
