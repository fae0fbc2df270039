from pathlib import Path

import pytest

from maskwright.train.reporting import Board
from tests.limits import limited_file_size

pytest.importorskip("tensorboard")


def read_points(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(point.step, point.value) for point in events.Scalars(name)]


def test_points_can_be_read_at_once(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    board.add({"split": "train", "step": 10, "loss": 5.25, "words": "none"})
    board.add({"split": "train", "step": 20, "loss": 4, "words": "none"})
    assert read_points(tmp_path / "board", "train/loss") == [(10, 5.25), (20, 4.0)]
    board.close()


def test_a_resumed_run_takes_the_place_of_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    for last_step, steps in ((None, (1, 2, 3)), (2, (3, 4))):
        board = Board(tmp_path, last_step)
        for step in steps:
            board.add({"split": "train", "step": step, "loss": len(steps)})
        board.close()
    assert read_points(tmp_path, "train/loss") == [(1, 3.0), (2, 3.0), (3, 2.0), (4, 2.0)]


def test_an_error_names_the_file(tmp_path: Path) -> None:
    board = Board(tmp_path)
    with limited_file_size(100), pytest.raises(OSError, match=r"too large: .*events\.out"):
        board.add({"split": "train", "step": 1, "a name that does not fit " * 10: 1.0})
    board.close()
