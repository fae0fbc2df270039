import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE
from maskwright.errors import ConfigError, InputError
from maskwright.evaluation import data as evaluation_data
from maskwright.evaluation.data import EvaluationText, PinnedText
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.pretraining import build as build_module
from maskwright.pretraining import validation
from maskwright.pretraining.build import build_trainer, check_machine, objective_of, resolve_model
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.pretraining.validation import TrainingSuites
from maskwright.runs.run_directory import load_run_config
from maskwright.tokenizer.tokenizer import EncodedText
from maskwright.train.signals import AbandonedError
from maskwright.train.trainer import Trainer
from tests.workplace import data_of


def build(workplace: Path, checkpoints: Path, **changes: dict[str, Any]) -> Trainer:
    """A trainer of the run ``small``, with other values."""
    config = load_run_config(workplace / "runs" / "small", changes)
    data = PreparedData(data_of(workplace), verify="sizes")
    return build_trainer(config, data, checkpoints, ALONE)[0]


def test_suites_are_scored_at_validations(workplace: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "The cat eats fish.", "sentence_bad": "The cat eat."}\n')
    suites = {"suites": ["blimp", "fill", "mlm", "pll"], "blimp": str(pairs)}
    evaluate = {**suites, "every_validations": 2}
    trainer = build(workplace, tmp_path, evaluate=evaluate)
    due = [0] * 4
    for number in range(4):  # of 5 in 150 steps
        trainer.state = replace(trainer.state, step=30 * number)
        due[number] = len([name for name in trainer.score(final=False) if "/" in name])
    assert due[0] == due[2] > 20
    assert due[1] == due[3] == 0
    scores = trainer.score(final=True)
    assert {"blimp/mean_over_pairs", "fill/accuracy", "pll/pseudo_perplexity"} < scores.keys()
    assert scores["mlm/loss"] > 0
    assert scores == trainer.score(final=True)


def test_a_validation_and_its_suites_stop_between_passes_through_the_model(
    workplace: Path, tmp_path: Path
) -> None:
    trainer = build(workplace, tmp_path, evaluate={"suites": ["fill", "pll"]})

    def score(stop_at: float) -> int:
        num_asked = 0

        def is_asked_to_stop() -> bool:
            nonlocal num_asked
            num_asked += 1
            return num_asked >= stop_at

        with nullcontext() if stop_at == math.inf else pytest.raises(AbandonedError):
            trainer.score(final=True, is_asked_to_stop=is_asked_to_stop)
        return num_asked

    num_in_all = score(math.inf)
    assert num_in_all > 10
    for number in (2, num_in_all - 2):
        assert score(number) == number
    assert trainer.score(final=True)["num_predictions"] > 0  # nobody asks any more


def test_suites_leave_no_trace_in_the_weights(workplace: Path, tmp_path: Path) -> None:
    train = {"max_steps": 6, "num_validations": 3}
    weights: list[dict[str, Tensor]] = []
    for suites in ([], ["fill", "mlm"]):
        values = {"train": train, "evaluate": {"suites": suites}}
        trainer = build(workplace, tmp_path / str(len(suites)), **values)
        trainer.fit()
        assert trainer.last_scores is not None
        assert ("fill/accuracy" in trainer.last_scores) == bool(suites)
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"suites": ["fil"]}, "evaluate.suites"),
        ({"suites": ["blimp"]}, "the suite blimp needs its folder"),
        ({"blimp": "somewhere"}, "the suite blimp needs its folder"),
        ({"every_validations": 0}, "evaluate.every_validations = 0 must be at least 1"),
    ],
)
def test_suites_that_cannot_be(workplace: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_run_config(workplace / "runs" / "small", {"evaluate": values})


@pytest.mark.parametrize("suite", ["blimp", "mlm", "fill", "pll"])
def test_what_a_suite_cannot_score_is_found_before_training(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    long = json.dumps("The cat eats fish. " * 40)
    pairs.write_text(f'{{"sentence_good": {long}, "sentence_bad": {long}}}\n')
    evaluate = {"suites": [suite], "blimp": str(pairs) if suite == "blimp" else None}
    config = load_run_config(workplace / "runs" / "small", {"evaluate": evaluate})
    data = PreparedData(data_of(workplace), verify="sizes")
    model = objective_of(config).build_network(resolve_model(config, data.tokenizer))
    assert isinstance(model, MaskedLanguageModel)
    if suite != "blimp":
        counts = np.zeros(data.tokenizer.vocab_size, np.int64)
        corpus = UnknownTokens(data.tokenizer.unk_id)
        only_unknown = EvaluationText(
            {"name": "short", "fingerprint": "f"}, corpus, counts, data.tokenizer
        )
        monkeypatch.setattr(validation, "describe_held_out", lambda *_: only_unknown)
        message = f"evaluate.suites: {suite} cannot be scored: short is too short"
    else:
        message = "evaluate.suites: blimp cannot be scored: .* tokens, more than the model's"
    with pytest.raises(InputError, match=message):
        TrainingSuites(config, data, model)


class UnknownTokens:
    """A document of two [UNK]: nothing to hide, and no sentence."""

    document_lengths = np.array([2])

    def __init__(self, unk_id: int) -> None:
        self.ids = np.array([unk_id] * 2, np.uint32)

    def tokens(self, start: int, stop: int) -> NDArray[np.uint32]:
        return self.ids[start:stop]

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]:
        return self.ids[start:stop] >= 0


def test_the_text_of_suites_is_cut_once(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_cut = 0
    cut = evaluation_data._cut_sentences

    def watch(*arguments: Any) -> Iterator[EncodedText]:
        nonlocal num_cut
        num_cut += 1
        return cut(*arguments)

    monkeypatch.setattr(evaluation_data, "_cut_sentences", watch)
    trainer = build(workplace, tmp_path, evaluate={"suites": ["fill"]})
    assert trainer.model.training
    for _ in range(2):
        assert "fill/accuracy" in trainer.score(final=True)
    assert num_cut == 1


def test_missing_minimal_pairs_are_noticed_before_anything_is_prepared(workplace: Path) -> None:
    evaluate = {"suites": ["blimp"], "blimp": "nowhere"}
    config = load_run_config(workplace / "runs" / "small", {"evaluate": evaluate})
    with pytest.raises(ConfigError, match=r"evaluate\.blimp = nowhere does not exist"):
        check_machine(config)


def test_bf16_needs_a_gpu_that_has_it(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "choose_device", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(build_module, "computes_in_bf16", lambda _: False)
    config = load_run_config(workplace / "runs" / "small", {"train": {"precision": "bf16"}})
    with pytest.raises(ConfigError) as caught:
        check_machine(config)
    assert caught.value.field == "train.precision"


def test_rows_of_a_validation_have_their_own_length(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = build(workplace, tmp_path, train={"valid_seq_length": 16})
    seen: set[int] = set()
    batches = PinnedText.batches

    def watch(text: PinnedText, **arguments: Any) -> Iterator[Batch]:
        for batch in batches(text, **arguments):
            seen.add(batch.context.row_length)
            yield batch

    monkeypatch.setattr(PinnedText, "batches", watch)
    assert trainer.score(final=True)["num_predictions"] > 0
    assert seen == {16}
