from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.commands.assemble import PreparedData
from maskwright.commands.build import build_trainer
from maskwright.commands.run_folder import load_run_config
from maskwright.commands.validation import Validation
from maskwright.data.batch import Batch
from maskwright.distributed.world import ALONE, World
from maskwright.train.signals import AbandonedError


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
