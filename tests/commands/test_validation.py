from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from maskwright.commands.assemble import PreparedData, check_config
from maskwright.commands.build import build_trainer
from maskwright.commands.run_folder import load_run_config
from maskwright.commands.validation import Validation
from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE, World
from maskwright.errors import ConfigError
from maskwright.train.signals import AbandonedError


def test_suites_are_scored_at_validations(workplace: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "The cat eats fish.", "sentence_bad": "The cat eat."}\n')
    suites = {"suites": ["blimp", "fill", "mlm", "pll"], "blimp": str(pairs)}
    evaluate = {**suites, "every_validations": 2}
    config = load_run_config(workplace / "runs" / "small", {"evaluate": evaluate})
    data = PreparedData(next((workplace / "data").iterdir()), verify="sizes")
    trainer, _ = build_trainer(config, data, tmp_path, ALONE)
    due = [0] * 4
    for number in range(4):  # of 10 in 150 steps
        trainer.state = replace(trainer.state, step=15 * number)
        due[number] = len([name for name in trainer.scores(final=False) if "/" in name])
    assert due[0] == due[2] > 20
    assert due[1] == due[3] == 0
    scores = trainer.scores(final=True)
    assert {"blimp/mean_over_pairs", "fill/accuracy", "pll/pseudo_perplexity"} < scores.keys()
    assert scores["mlm/loss"] > 0
    assert scores == trainer.scores(final=True)


def test_a_suite_stops_between_passes_through_the_model(workplace: Path, tmp_path: Path) -> None:
    evaluate = {"suites": ["fill", "pll"]}
    config = load_run_config(workplace / "runs" / "small", {"evaluate": evaluate})
    data = PreparedData(next((workplace / "data").iterdir()), verify="sizes")
    trainer, _ = build_trainer(config, data, tmp_path, ALONE)
    num_asked = 0

    def is_asked_to_stop() -> bool:
        nonlocal num_asked
        num_asked += 1
        return False

    trainer.scores(final=True, is_asked_to_stop=is_asked_to_stop)
    num_in_all, num_asked = num_asked, 0
    assert num_in_all > 10

    def is_asked_in_the_middle() -> bool:
        is_asked_to_stop()
        return num_asked >= num_in_all - 2

    with pytest.raises(AbandonedError):
        trainer.scores(final=True, is_asked_to_stop=is_asked_in_the_middle)
    assert num_asked == num_in_all - 2
    trainer.scores(final=True)  # nobody asks any more
    assert num_asked == num_in_all - 2


def test_suites_leave_no_trace_in_the_weights(workplace: Path, tmp_path: Path) -> None:
    data = PreparedData(next((workplace / "data").iterdir()), verify="sizes")
    train = {"max_steps": 6, "num_validations": 3}
    weights: list[dict[str, Tensor]] = []
    for suites in ([], ["fill", "mlm"]):
        values = {"train": train, "evaluate": {"suites": suites}}
        config = load_run_config(workplace / "runs" / "small", values)
        trainer, _ = build_trainer(config, data, tmp_path / str(len(suites)), ALONE)
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


def test_missing_minimal_pairs_are_noticed_before_anything_is_prepared(workplace: Path) -> None:
    evaluate = {"suites": ["blimp"], "blimp": "nowhere"}
    config = load_run_config(workplace / "runs" / "small", {"evaluate": evaluate})
    with pytest.raises(ConfigError, match=r"evaluate\.blimp = nowhere is not there"):
        check_config(config)


def test_a_validation_stops_between_batches(workplace: Path, tmp_path: Path) -> None:
    config = load_run_config(workplace / "runs" / "small", {})
    data = PreparedData(next((workplace / "data").iterdir()), verify="sizes")
    trainer, _ = build_trainer(config, data, tmp_path, ALONE)
    num_asked = 0

    def is_asked_to_stop() -> bool:
        nonlocal num_asked
        num_asked += 1
        return num_asked >= 2

    with pytest.raises(AbandonedError):
        trainer.scores(final=True, is_asked_to_stop=is_asked_to_stop)
    assert num_asked == 2
    assert trainer.scores(final=True)["num_predictions"] > 0


def test_rows_of_a_validation_have_their_own_length(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run_config(workplace / "runs" / "small", {})
    config = replace(config, train=replace(config.train, valid_seq_length=16))
    data = PreparedData(next((workplace / "data").iterdir()), verify="sizes")
    trainer, _ = build_trainer(config, data, tmp_path, ALONE)
    seen: set[int] = set()
    build = Validation._batches

    def watch(validation: Validation, final: bool, world: World) -> Iterator[Batch]:
        for batch in build(validation, final, world):
            seen.add(batch.row_length)
            yield batch

    monkeypatch.setattr(Validation, "_batches", watch)
    assert trainer.scores(final=True)["num_predictions"] > 0
    assert seen == {16}
