import sys
from pathlib import Path

from maskwright.sweeping.processes import Job, run_jobs, run_process

_MEET = """
import pathlib, sys, time
own, other = map(pathlib.Path, sys.argv[1:])
own.touch()
while not other.exists():
    time.sleep(0.01)
print("met")
"""


def test_run_jobs_runs_as_many_at_once_as_there_are_places(tmp_path: Path):
    """Each of two processes ends when the other has begun."""
    names = [tmp_path / "a", tmp_path / "b"]
    jobs = [
        Job([sys.executable, "-c", _MEET, str(own), str(other)], own.with_suffix(".log"))
        for own, other in (names, names[::-1])
    ]
    ended: list[tuple[Path, int]] = []
    pending = iter(jobs)
    stopped_by = run_jobs(
        lambda _: next(pending, None), lambda: 2, lambda job, code: ended.append((job.log, code))
    )
    assert stopped_by is None
    assert sorted(ended) == [(job.log, 0) for job in jobs]
    assert {job.log.read_text() for job in jobs} == {"met\n"}


def test_run_process_returns_the_exit_code_and_appends_to_the_log(tmp_path: Path):
    command = [sys.executable, "-c", "print('x'); raise SystemExit(3)"]
    log = tmp_path / "log"
    assert [run_process(command, log) for _ in range(2)] == [(3, None)] * 2
    assert log.read_text() == "x\nx\n"
