"""``python -m benchmarks fuzz`` without atheris, and what it makes of libFuzzer's words."""

import importlib.util
from types import SimpleNamespace

import pytest

from benchmarks import fuzz as program
from benchmarks.__main__ import main


def test_without_atheris_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs atheris.* pip install -e '\.\[fuzz\]'"):
        main(["fuzz", "--minutes", "0.01"])


def test_an_unknown_target_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fuzz", "--only", "nothing"])
    assert ended.value.code == 2
    assert "nothing" in capsys.readouterr().err


_CRASH = """
 === Uncaught Python exception: ===
IndexError: positions 502 to 5177344 of 1538
Traceback (most recent call last):
  …
artifact_prefix='x/'; Test unit written to x/crash-1
stat::number_of_executed_units: 42
stat::peak_rss_mb:              391
"""
_MEMORY = """
==1== ERROR: libFuzzer: out-of-memory (used: 1092Mb; limit: 1024Mb)
artifact_prefix='x/'; Test unit written to x/oom-2
"""


def test_findings_are_counted_once_and_described(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = iter(
        [(_CRASH, True), (_CRASH, True), (_MEMORY, True), ("stat::peak_rss_mb: 7", False)]
    )
    clock = iter([0.0, 1.0, 2.0, 3.0, 4.0, 99.0, 99.0])
    monkeypatch.setattr(program, "_run_worker", lambda target, seconds: next(outputs))
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    outcome = program.fuzz(program.TARGETS["config"], 60)
    assert (outcome.inputs, outcome.crashes, outcome.peak_memory_mb) == (84, 3, 391)
    assert outcome.findings == [
        "IndexError: positions 502 to 5177344 of 1538 (x/crash-1)",
        "out-of-memory (used: 1092Mb; limit: 1024Mb) (x/oom-2)",
    ]
