"""What requests may hold, and the one line about what they may not."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.task import Answer
from maskwright.inference.embed import Embedder
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import save_model, write_dimensions
from maskwright.serving.app import build_app
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import open_pipeline
from maskwright.serving.schemas import RESPONSES, OpenAIEmbeddingResponse, OpenAIErrorResponse
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.serving.helpers import SMALL, serve

TAGS = {"Ada": "B-PER", "Lovelace": "I-PER", "Bob": "B-PER", "London": "B-LOC"}
TEXT = "Ada  Lovelace met Bob in London ."


def serve_classifier(folder: Path, level: Any, labels: tuple[str, ...]) -> TestClient:
    model = build_classifier(make_loaded().model, FinetuneConfig(), level, len(labels), seed=0)
    save_classifier(folder, model, TOKENIZER, labels, "single_label_classification")
    pipeline = open_pipeline(folder, "cpu")
    app: Any = build_app("small", pipeline, ServeConfig())
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve_classifier(
        tmp_path_factory.mktemp("labels") / "model", "text", ("a", "b", "c")
    ) as client:
        yield client


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    names = ("O", "B-PER", "I-PER", "B-LOC")
    with serve_classifier(tmp_path_factory.mktemp("tags") / "model", "token", names) as client:
        yield client


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words have the tags above; `met` is dropped by the tokenizer."""

    def tag(self: Predictor, sentences: list[list[str]]) -> list[list[Answer]]:
        return [[_answer(word) for word in words] for words in sentences]

    monkeypatch.setattr(Predictor, "tag", tag)


def _answer(word: str) -> Answer:
    score = {"met": None, "Lovelace": 0.5}.get(word, 0.75)
    return Answer(TAGS.get(word, "O"), score, {})


@pytest.mark.parametrize(
    ("path", "body", "parts"),
    [
        ("/", {"inputs": 5}, ("inputs: ",)),
        ("/", {"inputs": ["a", 5]}, ("inputs[1]: ",)),
        ("/", {"inputs": {"text": 5}}, ("inputs.text: ", "must be a string")),
        ("/", {"inputs": {"text": "a", "b": 1}}, ("inputs.b: ", "not a known field")),
        ("/", {"inputs": "x" * 100_001}, ("inputs: ", "100000")),
        ("/", {}, ("inputs: is missing",)),
        ("/", [], ("the request: must be an object",)),
        ("/", {"inputs": "a", "top_k": 1}, ("top_k: ", "not a known field")),
        ("/", {"inputs": "a", "parameters": {"targets": ["b"]}}, ("parameters.targets: ",)),
        ("/", {"inputs": "a", "parameters": 5}, ("parameters: must be an object",)),
        (
            "/",
            {"inputs": "a", "parameters": {"function_to_apply": "none"}},
            ("function_to_apply = none ", "softmax"),
        ),
        ("/embed", {"inputs": {}}, ("inputs: ",)),
        ("/embed", {"inputs": "a", "normalize": False}, ("normalize: ",)),
    ],
)
def test_what_is_no_request_is_one_line_of_plain_words(
    labels: TestClient, path: str, body: Any, parts: tuple[str, ...]
) -> None:
    answer = labels.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(parts[0])
    assert all(part in answer.json()["error"] for part in parts)


def test_what_clients_send_is_taken(labels: TestClient, tags: TestClient) -> None:
    text = "the cat sees"
    parameters = {"top_k": 2, "function_to_apply": "softmax"}
    asked = {"inputs": text, "parameters": parameters, "options": {"use_cache": False}}
    assert len(labels.post("/", json=asked).json()[0]) == 2
    assert labels.post("/", json={"inputs": text, "parameters": {}}).status_code == 200
    assert labels.post("/", json={"inputs": text, "parameters": None}).status_code == 200
    wishes = {"normalize": True, "truncate": True, "truncation_direction": "right"}
    assert labels.post("/embed", json={"inputs": text, **wishes}).status_code == 200
    known = {"aggregation_strategy": "simple", "ignore_labels": ["O"], "stride": 4}
    assert tags.post("/", json={"inputs": text, "parameters": known}).status_code == 200


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_words_of_an_entity_are_one(tags: TestClient, strategy: str) -> None:
    parameters: dict[str, Any] = {"aggregation_strategy": strategy}
    found = tags.post("/", json={"inputs": TEXT, "parameters": parameters}).json()
    TypeAdapter(RESPONSES["token-classification"]).validate_python(found, strict=True)
    assert found == [
        {"entity_group": "PER", "score": 0.625, "word": "Ada  Lovelace", "start": 0, "end": 13},
        {"entity_group": "PER", "score": 0.75, "word": "Bob", "start": 18, "end": 21},
        {"entity_group": "LOC", "score": 0.75, "word": "London", "start": 25, "end": 31},
    ]
    parameters["ignore_labels"] = ["PER"]
    [only] = tags.post("/", json={"inputs": TEXT, "parameters": parameters}).json()
    assert only["word"] == "London"


@pytest.mark.usefixtures("known")
def test_words_are_by_themselves_unless_asked_for_together(tags: TestClient) -> None:
    found = tags.post("/", json={"inputs": TEXT}).json()
    assert [one["entity"] for one in found] == ["B-PER", "I-PER", "B-PER", "B-LOC"]
    assert (
        found
        == tags.post(
            "/", json={"inputs": TEXT, "parameters": {"aggregation_strategy": "none"}}
        ).json()
    )
    everything = {"inputs": TEXT, "parameters": {"ignore_labels": []}}
    words = [one["word"] for one in tags.post("/", json=everything).json()]
    assert words == ["Ada", "Lovelace", "Bob", "in", "London", "."]


OPENAI_PATH = "/v1/embeddings"
TEXTS = ["The fox eats berries.", "The cat eats fish. " * 20]  # the second is cut


def read_error(answer: Any) -> Any:
    """The error of a response, which must have the form of OpenAI."""
    return TypeAdapter(OpenAIErrorResponse).validate_python(answer.json(), strict=True)["error"]


def ask(client: TestClient, **body: Any) -> Any:
    return client.post(OPENAI_PATH, json={"model": "small", **body})


def test_vectors_are_those_of_embed_with_the_tokens_that_were_used(
    client: TestClient, folder: Path
) -> None:
    embed = Embedder(folder, "cpu")
    answer = ask(client, input=TEXTS, dimensions=embed.width, user="somebody").json()
    TypeAdapter(OpenAIEmbeddingResponse).validate_python(answer, strict=True)
    assert [one["index"] for one in answer["data"]] == [0, 1]
    vectors = np.array([one["embedding"] for one in answer["data"]], np.float32)
    assert vectors == pytest.approx(embed(TEXTS), abs=1e-6)
    [short, _] = embed.tokenizer.encode_batch(TEXTS)
    count = len(embed.wrap(short.ids.tolist())) + embed.longest
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert answer["model"] == "small"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": [1, 2]}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": "a", "model": None}, "model"),
        ({"input": "a", "model": "other"}, "model = 'other'"),
        ({"input": "a", "dimensions": "few"}, "dimensions: "),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "truncate": True}, "truncate: is not a known field"),
        ({"input": ["a"] * 5}, "the request has 5 texts"),
    ],
)
def test_what_is_wrong_is_one_line_in_the_form_of_openai(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    answer = ask(client, **body)
    assert answer.status_code == 422
    error = read_error(answer)
    assert error["message"].startswith(field)
    assert "\n" not in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_are_cut_to_sizes_that_were_trained(encoding: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", make_loaded().model, TOKENIZER)
    write_dimensions(tmp_path / "model", [16, 8, 32])
    client = serve(tmp_path / "model")
    whole = Embedder(tmp_path / "model", "cpu", normalize=False)(TEXTS)
    with client:
        for size in (8, 16, 32, None):
            answer = ask(client, input=TEXTS, dimensions=size, encoding_format=encoding).json()
            found = [one["embedding"] for one in answer["data"]]
            if encoding == "base64":
                found = [np.frombuffer(base64.b64decode(one), "<f4") for one in found]
            expected = whole[:, :size] / np.linalg.norm(whole[:, :size], axis=1, keepdims=True)
            assert np.array(found) == pytest.approx(expected, abs=1e-5)
        for size in (0, -1, 9, 33):
            answer = ask(client, input=TEXTS, dimensions=size)
            assert answer.status_code == 400
            message = read_error(answer)["message"]
            assert message.startswith(f"dimensions = {size} must be 8 or 16 or 32")


def test_every_error_of_these_paths_has_that_form(folder: Path) -> None:
    right = {"authorization": "Bearer secret"}
    late = ServeConfig(answer_seconds=0.01, max_wait_ms=500)
    with serve(folder, token="secret") as client, serve(folder, late) as slow:
        answers = {
            401: ask(client, input="a"),
            400: client.post(OPENAI_PATH, content=b"{", headers=right),
            404: client.get("/v1/nothing", headers=right),
            405: client.get(OPENAI_PATH, headers=right),
            413: client.post(OPENAI_PATH, content=b"x" * (SMALL.max_body_bytes + 1), headers=right),
            504: ask(slow, input="a"),
        }
    for status, answer in answers.items():
        assert answer.status_code == status
        error = TypeAdapter(OpenAIErrorResponse).validate_python(answer.json(), strict=True)[
            "error"
        ]
        assert error["type"] == ("server_error" if status == 504 else "invalid_request_error")


@pytest.mark.parametrize("names_problem", [True, False])
def test_one_label_is_a_probability_unless_it_is_a_number(
    names_problem: bool, tmp_path: Path
) -> None:
    model = build_classifier(make_loaded().model, FinetuneConfig(), "text", 1, seed=0)
    save_classifier(tmp_path / "model", model, TOKENIZER, ("LABEL_0",), "regression")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    if not names_problem:
        path.write_text(json.dumps({**config, "problem_type": None}))
    app: Any = build_app("small", open_pipeline(tmp_path / "model", "cpu"), ServeConfig())
    client = TestClient(app, base_url="http://localhost")
    asked = {"none": "none", "sigmoid": "sigmoid", "softmax": "softmax", "nothing": None}
    with client:
        answers = {
            name: client.post(
                "/", json={"inputs": "the cat", "parameters": {"function_to_apply": function}}
            )
            for name, function in asked.items()
        }
    logit = float(str(Predictor(tmp_path / "model", "cpu")(["the cat"])[0].label))
    probability = 1 / (1 + np.exp(-logit))
    expected = {"none": logit, "nothing": logit}
    if not names_problem:
        expected = {"none": logit, "nothing": probability, "sigmoid": probability}
    for name, answer in answers.items():
        assert answer.status_code == (200 if name in expected else 422)
        if name in expected:
            assert answer.json()[0][0]["score"] == pytest.approx(expected[name], abs=1e-6)


def test_openai_clients_list_the_one_model(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    (model,) = listed["data"]
    assert listed["object"] == "list"
    assert (model["id"], model["object"], type(model["created"])) == ("small", "model", int)
    assert client.get("/v1/models/small").json() == model
    assert client.get("/v1/models/large").status_code == 404


def test_sentence_similarity_is_the_cosine_of_the_embeddings(client: TestClient) -> None:
    source, others = "the red fox", ["the red fox", "a blue hen", "the dog"]
    inputs = {"source_sentence": source, "sentences": others}
    first, *rest = client.post("/embed", json={"inputs": [source, *others]}).json()
    expected = [sum(a * b for a, b in zip(first, one, strict=True)) for one in rest]
    answer = client.post("/similarity", json={"inputs": inputs, "parameters": {}})
    assert answer.json() == pytest.approx(expected, abs=1e-5)
    assert answer.json()[0] == pytest.approx(1, abs=1e-5)
    empty = client.post("/similarity", json={"inputs": {**inputs, "sentences": []}})
    assert empty.json() == []
    for wrong in ("text", {"sentences": others}, {**inputs, "more": 1}):
        refused = client.post("/similarity", json={"inputs": wrong})
        assert (refused.status_code, "inputs" in refused.json()["error"]) == (422, True)
