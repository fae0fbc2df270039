import json
import math
from pathlib import Path

import pytest

from maskwright.logs import MetricsLog, of_sources, read_metrics, split_sample
from tests.limits import limited_file_size


def write_steps(path: Path, steps: range, last_step: int | None = None) -> None:
    log = MetricsLog(path, last_step)
    for step in steps:
        log.write({"split": "train", "step": step, "loss": 1 / (step + 1)})
    log.close()


def test_every_record_is_one_line_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"split": "valid", "step": 3, "loss": 0.5, "samples": ["a\nb\u2028"]})
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1  # before it is closed
    assert read_metrics(path) == [
        {"split": "valid", "step": 3, "loss": 0.5, "samples": ["a\nb\u2028"]}
    ]
    log.close()


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    log.write({"a": math.nan, "b": -math.inf, "c": 1})
    log.close()
    text = (tmp_path / "m").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": None, "b": None, "c": 1}


def test_small_and_large_numbers_keep_their_digits(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m")
    log.write({"learning_rate": 1.2345678e-9, "tokens_per_second": 123456.789})
    log.close()
    assert read_metrics(tmp_path / "m") == [
        {"learning_rate": 1.2345678e-9, "tokens_per_second": 123456.79}
    ]


def test_a_resumed_run_drops_what_it_will_write_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_steps(path, range(10))
    write_steps(path, range(6, 8), last_step=5)
    assert [record["step"] for record in read_metrics(path)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_line_cut_by_a_crash_is_left_out_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write_steps(path, range(3))
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-5], encoding="utf-8")
    assert [record["step"] for record in read_metrics(path)] == [0, 1]
    write_steps(path, range(2, 4), last_step=2)
    assert [record["step"] for record in read_metrics(path)] == [0, 1, 2, 3]


def test_lines_that_stay_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1,  "kept": "as it is"}\n{"step": 2}\n{"step": 3}\n\0\0\n{"ste')
    inode = path.stat().st_ino
    write_steps(path, range(0), last_step=2)
    assert path.read_text() == '{"step": 1,  "kept": "as it is"}\n{"step": 2}\n'
    assert path.stat().st_ino == inode
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named_and_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write({"step": 1})
    with limited_file_size(path.stat().st_size + 10), pytest.raises(OSError, match="metrics"):
        log.write({"step": 2, "text": "more than ten bytes"})
    assert path.read_bytes().startswith(b'{"step": 1}\n{"step": 2')  # a part of it fitted
    log.close()
    write_steps(path, range(2, 4), last_step=1)
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]


def test_no_file_holds_no_records(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none") == []


def test_a_file_that_cannot_be_cut_is_named() -> None:
    """A device has no length to change; a full or broken disk answers alike."""
    with pytest.raises(OSError, match="/dev/null") as caught:
        MetricsLog(Path("/dev/null"))
    assert caught.value.filename == "/dev/null"


def test_guesses_are_found_in_a_sample() -> None:
    assert list(split_sample("✓ a [MASK]")) == [("right", "✓"), ("plain", " a [MASK]")]
    parts = [("plain", "We a"), ("right", "⟨r⟩"), ("plain", "e acc"), ("wrong", "⟨e≠o⟩")]
    assert list(split_sample("We a⟨r⟩e acc⟨e≠o⟩")) == parts


def test_scores_of_sources() -> None:
    record = {"loss": 2.0, "loss/wiki": 1.5, "loss/books": None, "accuracy/wiki": 0.5}
    assert of_sources(record, "loss") == {"wiki": 1.5}
