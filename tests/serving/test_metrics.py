"""What a server counts: labels, texts, and those that it cut; transformers is the judge."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient
from transformers import AutoTokenizer

from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import build_classifier
from maskwright.model.config import Level, ProblemType
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.serving.config import ServeConfig
from maskwright.serving.pipelines import open_pipeline
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.serving.helpers import serve

LABELS = ("O", "B-PER", "I-PER")
MAX_LENGTH = 12  # tokens of a classifier, less than the positions of its model


class Served(NamedTuple):
    """A client of a model, and its folder."""

    client: TestClient
    folder: Path


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """A server for each kind of model."""
    kinds: dict[str, tuple[Level, ProblemType, int, int | None]] = {
        "labels": ("text", "single_label_classification", 3, None),
        "several labels": ("text", "multi_label_classification", 3, 1),
        "number": ("text", "regression", 1, None),
        "pairs": ("text", "single_label_classification", 3, 2),
        "tags": ("token", "single_label_classification", 3, None),
    }
    folders = {"masks": folder}
    for name, (level, problem, num_labels, num_texts) in kinds.items():
        folders[name] = path = tmp_path_factory.mktemp("served") / "model"
        model = build_classifier(make_loaded().model, FinetuneConfig(), level, num_labels, seed=0)
        labels, lengths = LABELS[:num_labels], {"max_length": MAX_LENGTH, "num_texts": num_texts}
        save_classifier(path, model, TOKENIZER, labels, problem, **lengths)
    with ExitStack() as stack:
        yield {
            name: Served(stack.enter_context(serve(path, ServeConfig())), path)
            for name, path in folders.items()
        }


def read_counts(client: TestClient, name: str) -> Counter[str]:
    """The values of a metric by its first label, or by "" where it has none."""
    lines = re.findall(
        rf'^{name}_total(?:{{\w+="(.*)"}})? (.*)$', client.get("/metrics").text, re.M
    )
    return Counter({label: int(float(value)) for label, value in lines})


def count_cut(folder: Path, texts: list[tuple[str, ...]], longest: int) -> int:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    return sum(len(tokenizer(*each)["input_ids"]) > longest for each in texts)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        *(("masks", path) for path in ("/embed", "/v1/embeddings", "/similarity")),
        *((kind, "/") for kind in ("labels", "several labels", "number", "pairs", "tags")),
        *((kind, "/embed") for kind in ("labels", "pairs", "tags")),
    ],
)
def test_count_texts_counts_each_text_that_was_cut(
    served: dict[str, Served], kind: str, path: str
) -> None:
    """Around the length that is read, token by token."""
    client, folder = served[kind]
    longest = open_pipeline(folder, "cpu").embedder.longest
    is_cut = True
    if path == "/":
        longest, is_cut = MAX_LENGTH, kind != "tags"  # long sentences are tagged in parts
    texts: list[tuple[str, ...]] = [("the " * n,) for n in range(1, longest + 9)]
    inputs: list[Any] = [text for (text,) in texts]
    if (kind, path) == ("pairs", "/"):
        texts = [(text, "cat " * n) for (text,) in texts for n in range(1, 7)]
        inputs = [{"text": text, "text_pair": pair} for text, pair in texts]
    before = read_counts(client, "maskwright_cut_texts")[""]
    num_before = read_counts(client, "maskwright_texts")[""]
    bodies = {
        "/v1/embeddings": {"input": inputs, "model": "small"},
        "/similarity": {"inputs": {"source_sentence": inputs[0], "sentences": inputs[1:]}},
    }
    answer = client.post(path, json=bodies.get(path, {"inputs": inputs}))
    assert answer.status_code == 200, answer.text
    expected = count_cut(folder, texts, longest) if is_cut else 0
    assert (expected > 0) == is_cut
    assert int(answer.headers["x-cut-texts"]) == expected
    assert read_counts(client, "maskwright_cut_texts")[""] - before == expected
    assert read_counts(client, "maskwright_texts")[""] - num_before == len(texts)


def test_name_model_counts_the_labels_that_are_predicted(served: dict[str, Served]) -> None:
    texts = [f"the cat {word}" for word in ("sees", "eats the fish", "the the cat", "a", "fish")]
    for kind, (client, _) in served.items():
        before = read_counts(client, "maskwright_predicted_labels")
        assert [*before] == ([] if kind in ("masks", "number") else [*LABELS])
        inputs: list[Any] = texts
        if kind == "pairs":
            inputs = [{"text": text, "text_pair": "cat"} for text in texts]
        elif kind == "masks":
            inputs = [f"{text} [MASK]" for text in texts]
        parameters = {"ignore_labels": []} if kind == "tags" else {}
        found = client.post("/", json={"inputs": inputs, "parameters": parameters}).json()
        expected: Counter[str] = Counter()
        for one in found if kind not in ("masks", "number") else ():
            labels = one if kind == "tags" else one[:1]
            if kind == "several labels":
                labels = [label for label in one if label["score"] > 0.5]
            expected.update(label["entity" if kind == "tags" else "label"] for label in labels)
        client.post("/embed", json={"inputs": texts})  # predicts none
        after = read_counts(client, "maskwright_predicted_labels")
        assert after - before == expected
        assert bool(expected) == (kind not in ("masks", "number"))
