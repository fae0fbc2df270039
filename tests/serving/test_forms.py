"""What requests may hold, and the one line about what they may not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.finetuning.predict import Predictor
from maskwright.finetuning.task import Answer
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.serving.answers import open_answerer
from maskwright.serving.app import build_app
from maskwright.serving.config import ServeConfig
from maskwright.serving.forms import ANSWERS
from maskwright.serving.reading import open_reader
from tests.finetuning.helpers import TOKENIZER, make_loaded

TAGS = {"Ada": "B-PER", "Lovelace": "I-PER", "Bob": "B-PER", "London": "B-LOC"}
TEXT = "Ada  Lovelace met Bob in London ."


def serve(folder: Path, level: Any, labels: tuple[str, ...]) -> TestClient:
    model = build_classifier(make_loaded().model, FinetuneConfig(), level, len(labels), seed=0)
    save_classifier(folder, model, TOKENIZER, labels, "single_label_classification")
    answerer = open_answerer(folder, "cpu")
    app: Any = build_app("small", answerer, open_reader(answerer), ServeConfig())
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve(tmp_path_factory.mktemp("labels") / "model", "text", ("a", "b", "c")) as client:
        yield client


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    names = ("O", "B-PER", "I-PER", "B-LOC")
    with serve(tmp_path_factory.mktemp("tags") / "model", "token", names) as client:
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


FORM, LABELS = "inputs, parameters, options", "top_k, function_to_apply"
VECTORS = "inputs, normalize, truncate, truncation_direction, encoding_format"
PAIR = 'for models of pairs {"text": …, "text_pair": …}'


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/", {"inputs": 5}, f"inputs: must be a text, a list of texts, or {PAIR}"),
        ("/", {"inputs": ["a", 5]}, f"inputs[1]: must be a text, or {PAIR}"),
        ("/", {"inputs": [["a"]]}, f"inputs[0]: must be a text, or {PAIR}"),
        ("/", {"inputs": None}, f"inputs: must be a text, a list of texts, or {PAIR}"),
        ("/", {"inputs": {"text": 5}}, "inputs.text: must be a text"),
        ("/", {"inputs": {"text_pair": "a"}}, "inputs.text: is missing"),
        (
            "/",
            {"inputs": {"text": "a", "b": 1}},
            "inputs: 'b' is nothing here; there is text, text_pair",
        ),
        ("/", {"inputs": "x" * 100_001}, "inputs: String should have at most 100000 characters"),
        ("/", [], f"the request: must be an object of {FORM}"),
        (
            "/",
            {"inputs": "a", "top_k": 1},
            f"the request: 'top_k' is nothing here; there is {FORM}",
        ),
        (
            "/",
            {"inputs": "a", "parameters": {"foo": 1}},
            f"parameters: 'foo' is nothing here; there is {LABELS}",
        ),
        (
            "/",
            {"inputs": "a", "parameters": {"targets": ["b"]}},
            f"parameters: 'targets' is nothing here; there is {LABELS}",
        ),
        ("/", {"inputs": "a", "parameters": 5}, f"parameters: must be an object of {LABELS}"),
        (
            "/",
            {"inputs": "a", "parameters": {"function_to_apply": "none"}},
            "function_to_apply = none is not this model's, which is softmax",
        ),
        ("/embed", {"inputs": 5}, "inputs: must be a text or a list of texts"),
        ("/embed", {"inputs": {}}, "inputs: must be a text or a list of texts"),
        ("/embed", {"inputs": ["a", 5]}, "inputs[1]: must be a text"),
        ("/embed", {"inputs": "a", "normalize": False}, "normalize: Input should be True"),
        (
            "/embed",
            {"inputs": "a", "dimensions": 2},
            f"the request: 'dimensions' is nothing here; there is {VECTORS}",
        ),
    ],
)
def test_what_is_no_request_is_one_line_of_plain_words(
    labels: TestClient, path: str, body: Any, message: str
) -> None:
    answer = labels.post(path, json=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(message)


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
    TypeAdapter(ANSWERS["token-classification"]).validate_python(found, strict=True)
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
