"""A server in this process, asked as its clients ask."""

import json
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from maskwright.errors import InputError, ModelFolderError
from maskwright.evaluation.run import hash_model
from maskwright.inference.embed import Embedder
from maskwright.inference.fill_mask import FillMask
from maskwright.serving.app import Service, build_app
from maskwright.serving.batcher import MAX_FAILED_PASSES
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import Pipeline, open_pipeline
from maskwright.serving.schemas import RESPONSES, ScoredText
from tests.serving.helpers import SMALL, serve

LATE = "the answer took too long. Send fewer or shorter texts."
TEXT = "The small [MASK] eats grass every day."


def test_masks_are_filled_in_the_shape_of_hugging_face(client: TestClient, folder: Path) -> None:
    answer = client.post("/", json={"inputs": TEXT, "parameters": {"top_k": 3}})
    assert answer.status_code == 200
    [expected] = FillMask(folder, "cpu")(TEXT, top_k=3)
    found = answer.json()
    assert [one["token"] for one in found] == [p.token_id for p in expected.masks[0]]
    assert [one["score"] for one in found] == pytest.approx([p.score for p in expected.masks[0]])
    assert found[0]["sequence"] == f"The small {found[0]['token_str']} eats grass every day."
    assert client.post("/models/small", json={"inputs": TEXT}).json()[:3] == found


def test_it_is_what_the_pipeline_of_transformers_says(client: TestClient, folder: Path) -> None:
    from transformers import pipeline

    ask: Any = pipeline("fill-mask", str(folder))
    for text in (TEXT, "The [MASK] horse eats [MASK]."):
        ours = client.post("/", json={"inputs": text}).json()
        theirs = ask(text)
        if text != TEXT:
            ours, theirs = ours[0] + ours[1], theirs[0] + theirs[1]
        for mine, his in zip(ours, theirs, strict=True):
            assert (mine["token"], mine["token_str"]) == (his["token"], his["token_str"])
            assert mine["sequence"] == his["sequence"]
            assert mine["score"] == pytest.approx(his["score"], abs=1e-5)


def test_many_texts_many_masks_and_targets(client: TestClient) -> None:
    texts = [TEXT, "The [MASK] horse eats [MASK]."]
    parameters = {"targets": ["horse", "fox"]}
    one, two = client.post("/", json={"inputs": texts, "parameters": parameters}).json()
    assert {found["token_str"] for found in one} == {"horse", "fox"}
    assert [len(mask) for mask in two] == [2, 2]


def test_vectors_and_scores(client: TestClient, folder: Path) -> None:
    texts = ["The fox eats berries.", ""]
    found = np.array(client.post("/embed", json={"inputs": texts}).json())
    assert found == pytest.approx(Embedder(folder, "cpu")(texts), abs=1e-6)
    [scored] = client.post("/score", json={"inputs": texts[0]}).json()
    assert scored["score"] == pytest.approx(sum(token["score"] for token in scored["tokens"]))
    pieces = [texts[0][token["start"] : token["end"]] for token in scored["tokens"]]
    assert "".join(pieces) == texts[0].replace(" ", "")


def test_a_word_that_is_too_long_is_refused_alone(folder: Path) -> None:
    long, scored = open_pipeline(folder, "cpu").score(["a" * 20_000, "The fox eats berries."])
    assert isinstance(long, InputError)
    assert not isinstance(scored, InputError)


def test_it_says_how_it_is(client: TestClient, folder: Path) -> None:
    health = client.get("/health")
    assert health.json() == {
        "status": "ok", "model": "small", "sha256": hash_model(folder), "task": "fill-mask",
        "scores": True
    }  # fmt: skip
    assert health.headers["x-model"] == "small"
    assert health.headers["x-model-sha256"] == hash_model(folder)
    client.post("/", json={"inputs": TEXT})
    client.get("/made-up")
    figures = client.get("/metrics").text
    assert 'maskwright_requests_total{path="/",status="200"}' in figures
    assert 'path="other",status="404"' in figures
    assert "made-up" not in figures
    assert "maskwright_batch_texts_count" in figures
    assert f'sha256="{hash_model(folder)}"' in figures
    assert "_created" not in figures
    paths = client.get("/openapi.json").json()["paths"]
    assert {
        "/",
        "/models/small",
        "/embed",
        "/similarity",
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/small",
        "/score",
        "/health",
        "/metrics",
    } == paths.keys()


def break_model(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an error of CUDA, which every later call raises again."""

    def fail(*arguments: Any) -> None:
        raise RuntimeError("CUDA error: the secret of this device")

    monkeypatch.setattr(pipeline.fill, "attempt", fail)


def test_a_model_that_fails_again_and_again_is_not_well(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = open_pipeline(folder, "cpu")
    app: Any = build_app("small", pipeline, SMALL)
    with TestClient(app, base_url="http://localhost") as client:
        with monkeypatch.context() as patch:
            break_model(pipeline, patch)
            for _ in range(MAX_FAILED_PASSES):
                assert client.get("/health").status_code == 200
                assert client.post("/", json={"inputs": TEXT}).status_code == 500
            answer = client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (503, "not working")
        assert client.post("/embed", json={"inputs": TEXT}).status_code == 200  # the same model
        assert client.get("/health").json()["status"] == "ok"


def test_damaged_weights_are_no_mistake_of_the_client(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ModelFolderError("its weights are damaged")

    pipeline: Any = open_pipeline(folder, "cpu")
    monkeypatch.setattr(pipeline.fill, "attempt", fail)
    app: Any = build_app("small", pipeline, SMALL)
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.post("/", json={"inputs": TEXT})
    assert (answer.status_code, "damaged" in answer.text) == (500, True)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/", {"inputs": "no mask"}, 422, '"no mask" has no [MASK]'),
        ("/", {"inputs": [TEXT, "no mask"]}, 422, 'inputs[1]: "no mask" has no [MASK]'),
        ("/", {"inputs": TEXT, "parameters": {"top_k": 0}}, 422, "parameters.top_k: "),
        ("/", {"inputs": TEXT, "parameters": {"top_k": 21}}, 422, "top_k = 21"),
        ("/", {"inputs": TEXT, "parameters": {"targets": ["zzz zz"]}}, 422, "not one token"),
        ("/", {}, 422, "inputs: "),
        ("/", {"inputs": [TEXT] * 5}, 422, "5 texts"),
        ("/", {"inputs": "[MASK] " + "cat " * 90}, 422, "Shorten it"),
        ("/", {"inputs": "x" * 3000}, 413, "2000"),
        ("/nothing", {}, 404, "/nothing"),
        ("/health", {}, 405, "POST"),
        (
            "/",
            {"inputs": {"text": TEXT, "text_pair": "b"}},
            422,
            "text_pair",
        ),
        (
            "/",
            {"inputs": "[MASK] " * 3, "parameters": {"top_k": 20}},
            422,
            "60 candidates",
        ),
        (
            "/",
            {"inputs": "[MASK] " + "the cat " * 30, "parameters": {"top_k": 20}},
            422,
            "4,940 characters",
        ),
        ("/score", {"inputs": "the cat eats fish " * 6}, 422, "676 tokens"),
        ("/score", {"inputs": TEXT}, 422, "inputs contains [MASK]"),
        ("/score", {"inputs": ["a", TEXT]}, 422, "inputs[1] contains [MASK]"),
        ("/embed", {"inputs": ["the cat " * 7] * 4}, 200, ""),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    client: TestClient, path: str, body: Any, status: int, message: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert status == 200 or message in answer.json()["error"]


@pytest.mark.parametrize("body", [b"{", b"nojson", b"\xff\xfe", b"[" * 1900])
def test_a_body_that_is_no_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/", content=body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]


@pytest.mark.parametrize("name", [None, "application/x-www-form-urlencoded"])
def test_a_body_is_json_whatever_it_is_called(client: TestClient, name: str | None) -> None:
    headers = {"content-type": name} if name else {}
    answer = client.post("/", content=json.dumps({"inputs": TEXT}).encode(), headers=headers)
    assert answer.status_code == 200, answer.text


def test_a_token_is_asked_for_everywhere_but_where_it_cannot_be(folder: Path) -> None:
    with serve(folder, token="secret") as client:
        assert client.post("/", json={"inputs": TEXT}).status_code == 401
        assert client.get("/metrics").headers["www-authenticate"] == "Bearer"
        wrong = client.post("/", json={"inputs": TEXT}, headers={"authorization": "Bearer secre"})
        assert wrong.status_code == 401
        right = {"authorization": "Bearer secret"}
        assert client.post("/", json={"inputs": TEXT}, headers=right).status_code == 200
        for path in ("/", "/health"):
            assert client.head(path).status_code == client.get(path).status_code == 200
        assert "needsToken&quot;: true" in client.get("/").text


def test_the_page_runs_nothing_but_its_own_script(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    for name in ("x-content-type-options", "x-frame-options", "referrer-policy"):
        assert name in answer.headers
    assert "access-control-allow-origin" not in answer.headers


def test_the_log_says_what_happened_and_not_what_was_asked(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "maskwright.access"):
        client.post("/", json={"inputs": TEXT})
    [line] = caplog.messages
    record = json.loads(line)
    assert (record["method"], record["path"], record["status"]) == ("POST", "/", 200)
    assert record["bytes"] > len(TEXT)
    assert "grass" not in line


def test_too_many_texts_at_once_are_asked_to_come_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, attempt = threading.Event(), FillMask.attempt

    def wait(self: FillMask, *arguments: Any) -> Any:
        go.wait(60)
        return attempt(self, *arguments)

    monkeypatch.setattr(FillMask, "attempt", wait)
    config = ServeConfig(max_texts=2, max_queued=2)
    with serve(folder, config) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.post, "/", json={"inputs": [TEXT, TEXT]}) for _ in range(4)]
        first = next(as_completed(asked))  # one is in the model, one in the queue
        go.set()
        assert first.result().status_code == 503
        answers = [one.result() for one in asked]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        assert len(refused) < 4
        # Whoever asks again at once shall not take the time of those that are answered.
        assert all(answer.elapsed.total_seconds() >= 0.25 for answer in refused)
        assert client.post("/", json={"inputs": TEXT}).status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(folder: Path) -> None:
    config = ServeConfig(answer_seconds=0.01, max_wait_ms=500)
    with serve(folder, config) as client:
        answer = client.post("/", json={"inputs": TEXT})
        assert (answer.status_code, answer.json()["error"]) == (504, LATE)


@pytest.mark.parametrize("path", ["/", "/embed", "/score"])
def test_counting_tokens_is_part_of_the_time_of_an_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    go = threading.Event()

    def measure_slowly(self: Pipeline, texts: Sequence[str]) -> list[int]:
        go.wait(60)
        return [1] * len(texts)

    monkeypatch.setattr(Pipeline, "count_tokens", measure_slowly)
    with serve(folder, ServeConfig(answer_seconds=0.3)) as client:
        begin = "[MASK]" if path == "/" else "the cat"
        answer = client.post(path, json={"inputs": begin + " the cat" * 600})
        go.set()
        assert (answer.status_code, answer.json()["error"]) == (504, LATE)


def test_every_answer_is_of_the_form_that_the_document_says(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for path, posted in (("/", {"inputs": TEXT}), ("/embed", {"inputs": "a"})):
        described = document["paths"][path]["post"]["responses"]
        assert {"200", "401", "408", "413", "422", "503", "504"} <= described.keys()
        assert "HTTPValidationError" not in json.dumps(described)
        assert described["200"]["content"]["application/json"]["schema"]
        assert client.post(path, json=posted).status_code == 200
    found = client.post("/", json={"inputs": TEXT}).json()
    TypeAdapter(RESPONSES["fill-mask"]).validate_python(found, strict=True)
    scored = client.post("/score", json={"inputs": "the cat"}).json()
    TypeAdapter(list[ScoredText]).validate_python(scored, strict=True)


def test_whoever_calls_it_by_a_strange_name_gets_nothing(folder: Path) -> None:
    headers = {"host": "evil.example:8000"}
    with serve(folder) as client:
        for method, path in (("GET", "/"), ("GET", "/health"), ("POST", "/")):
            answer = client.request(method, path, json={"inputs": TEXT}, headers=headers)
            assert answer.status_code == 421
            assert "evil.example" in answer.json()["error"]
    with serve(folder, token="secret") as client:  # which a page of evil.example does not have
        assert client.get("/health", headers=headers).status_code == 200


def test_a_slash_too_many_is_no_redirect(client: TestClient) -> None:
    answer = client.post("/embed/", json={"inputs": "a"}, follow_redirects=False)
    assert (answer.status_code, "location" in answer.headers) == (404, False)


@pytest.mark.parametrize("path", ["/", "/embed", "/v1/embeddings", "/similarity", "/score"])
def test_a_request_may_have_2048_texts_that_fit_in_its_tokens(folder: Path, path: str) -> None:
    """As OpenAI's clients send them; LangChain sends 1,000 unless it is told another number."""
    first = "the [MASK]" if path == "/" else "the cat"

    def make_body(texts: list[str]) -> Any:
        if path == "/v1/embeddings":
            return {"input": texts, "model": "small"}
        source = {"source_sentence": texts[0], "sentences": texts[1:]}
        return {"inputs": source if path == "/similarity" else texts}

    def read_error(answer: Any) -> str:
        error = answer.json()["error"]
        return error["message"] if path.startswith("/v1/") else error

    with serve(folder, ServeConfig()) as client:
        answer = client.post(path, json=make_body([first] * 2048))
        assert answer.status_code == 200, answer.text
        found = answer.json()
        found = found["data"] if path == "/v1/embeddings" else found
        assert len(found) == (2047 if path == "/similarity" else 2048)
        more = client.post(path, json=make_body([first] * 2049))
        assert (more.status_code, "2049 texts" in read_error(more)) == (422, True)
    with serve(folder, ServeConfig(max_tokens=50)) as client:
        long = client.post(path, json=make_body([first] * 100))
        assert (long.status_code, "at most 50" in read_error(long)) == (422, True)


def test_pin_model_keeps_the_model_of_a_request_until_its_answer(folder: Path) -> None:
    first, second = open_pipeline(folder, "cpu"), open_pipeline(folder, "cpu")
    second.sha256 = "another"
    service = Service("Modèle 1", first, SMALL)

    async def replace(scope: Any, receive: Any, send: Any) -> None:
        service.use(second)
        await PlainTextResponse(service.pipeline.sha256)(scope, receive, send)

    pinned: Any = service.pin_model(replace)
    for model in (first, second):
        answer = TestClient(pinned).get("/")
        assert answer.text == answer.headers["x-model-sha256"] == model.sha256
        assert answer.headers["x-model"] == "Mod%C3%A8le%201"
