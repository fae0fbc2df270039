"""The peers' rows, the turns of contenders, and the answers that are read off their runs."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from benchmarks.common import divide, race
from benchmarks.matrix_products import Product, list_orthogonalization, list_step
from benchmarks.time_to_quality import answer
from benchmarks.trainer_peer import cut_blocks, list_documents
from maskwright.model.config import EncoderConfig
from maskwright.pretraining.prepared_data import PreparedData
from tests.model.helpers import tiny_config

CLS, SEP = 2, 3


def prepare(*documents: list[int]) -> PreparedData:
    ids = np.array([token for document in documents for token in document])
    train = SimpleNamespace(
        document_lengths=np.array([len(document) for document in documents]),
        tokens=lambda start, stop: ids[start:stop],
    )
    return cast(
        Any, SimpleNamespace(train=train, tokenizer=SimpleNamespace(cls_id=CLS, sep_id=SEP))
    )


def test_the_peers_rows_are_documents_between_special_tokens():
    data = prepare([10, 11, 12], [13], [14, 15])
    assert list(list_documents(data)) == [[2, 10, 11, 12, 3], [2, 13, 3], [2, 14, 15, 3]]
    assert list(list_documents(data, longest=4)) == [[2, 10, 11, 3], [2, 13, 3], [2, 14, 15, 3]]
    assert cut_blocks(data, 2, row_length=4) == [[2, 10, 11, 12], [3, 2, 13, 3]]
    assert cut_blocks(data, 9, row_length=4)[-1] == [2, 14, 15, 3]


def test_contenders_take_turns_and_are_divided_round_by_round():
    order: list[str] = []

    def run(name: str, speeds: list[float]) -> float:
        order.append(name)
        return speeds.pop(0)

    ours, theirs = [4.0, 9.0, 10.0], [2.0, 3.0, 10.0]
    found = race({"a": lambda: run("a", ours), "b": lambda: run("b", theirs)}, 3, "tokens/s")
    assert order == ["a", "b"] * 3
    assert divide(found["a"], found["b"]) == {"median": 2.0, "least": 1.0, "most": 3.0}


def test_the_answer_is_our_shortest_run_as_good_as_the_best_rate():
    def score(loss: float, **others: float) -> dict[str, Any]:
        return {"loss": loss, "masked_accuracy": 0.1, **others}

    runs = {
        "bert-0.0005": score(6.5, rate=5e-4),
        "bert-0.001": score(7.0, rate=1e-3),
        "modernbert-0.001": score(4.0, rate=1e-3),
        "ours-15": score(6.8, seconds=20.0),
        "ours-60": score(6.5, seconds=65.0),
        "ours-90": score(6.0, seconds=95.0),
    }
    found = dict(answer(runs, minutes=30))
    assert found["bert"]["best_rate"] == 5e-4
    assert found["bert"]["our_seconds"] == 65.0
    assert found["bert"]["times_faster"] == 1800 / 65
    assert found["modernbert"]["our_seconds"] is None


def test_the_products_of_a_step_are_those_of_its_layers():
    config: EncoderConfig = tiny_config()
    dense = 2 * 64 * config.hidden_size * config.vocab_size * 3
    products = list_step(config, tokens=128, row_length=32, masked=64)
    assert sum(p.flops for p in products[-3:]) == dense
    assert Product(2, 3, 4, 5, 6).flops == 2 * 2 * 3 * 4 * 5 * 6
    assert list_orthogonalization(config, 5, torch.float32)
