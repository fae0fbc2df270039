"""Processes of Python that need not import torch: they are forked from one that has it.

That takes a hundredth of the time. Session, signals, exit code, streams and environment are as in a
process of its own. Not so: ``atexit``, flags of the interpreter, and ``__main__`` of ``-c``.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, TextIO

# One for all forks of a process that runs tests. DDP and FSDP would each import torch's compiler.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"),
        *("maskwright.cli.pretrain", "maskwright.cli.prepare", "maskwright.serving.server"),
        *("maskwright.preparation.cluster", "tests.train.helpers", "tests.preparation.helpers"),
        "tests.frozen",
    ]
)
_ROOT, _ENVIRONMENT = Path(__file__).parents[1], dict(os.environ)


def ensure_server() -> None:
    """Start the process that is forked, if there is none, with nothing that a test has changed."""
    changed = dict(os.environ)
    try:
        _set_environment(_ENVIRONMENT)
        with contextlib.chdir(_ROOT):  # which the imports need
            forkserver.ensure_running()
    finally:
        _set_environment(changed)


def _set_environment(values: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)


class _Descriptor(int):
    """The number of an open file, which becomes that of the same file where it is sent."""

    def __reduce__(self) -> Any:
        return _detach, (DupFd(self),)


def _detach(descriptor: Any) -> int:
    return descriptor.detach()


class Forked:
    """``python -m MODULE ARGUMENTS`` or ``python -c CODE ARGUMENTS``, in a session of its own.

    Attributes are those of `subprocess.Popen`, with pipes for all streams unless there is a log.

    Args:
        log: a file for all output.
        prepare: is called in the process first; a function of a module.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        streams, self._pipes = list[_Descriptor](), list[TextIO]()
        ready, begun = os.pipe()
        if log is not None:
            log.write_bytes(b"")
        else:
            (stdin, asked), (said, stdout), (wrong, stderr) = (os.pipe() for _ in range(3))
            streams = [_Descriptor(number) for number in (stdin, stdout, stderr)]
            self.stdin = os.fdopen(asked, "w")
            self.stdout, self.stderr = os.fdopen(said), os.fdopen(wrong)
            self._pipes = [self.stdin, self.stdout, self.stderr]
        given = (list(command), _Descriptor(begun), streams, log, prepare, dict(os.environ))
        self._process = CONTEXT.Process(target=_run, args=given)
        ensure_server()
        self._process.start()
        for number in (begun, *streams):
            os.close(number)
        os.read(ready, 1)  # it has its session and its streams
        os.close(ready)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, seconds: float | None = None) -> int:
        self._process.join(seconds)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("forked", seconds or 0)
        return self.returncode

    def communicate(self, seconds: float = 120) -> tuple[str, str]:
        """Return all output and errors, when nobody can write any more."""
        with ThreadPoolExecutor(2) as readers:
            reading = [readers.submit(pipe.read) for pipe in (self.stdout, self.stderr)]
            try:
                said, wrong = (one.result(seconds) for one in reading)
            except TimeoutError:
                os.killpg(self.pid, signal.SIGKILL)
                raise
        self.wait(seconds)
        return said, wrong

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Wait for its end; after an error, kill its session."""
        if error is not None and self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()
        for pipe in self._pipes:
            pipe.close()


def _run(
    command: list[str],
    begun: int,
    streams: list[int],
    log: Path | None,
    prepare: Callable[[], object] | None,
    environment: dict[str, str],
) -> None:
    assert "tests.frozen" in sys.modules, "the process that was forked could not import the tests"
    os.setsid()
    if log is not None:
        output = os.open(log, os.O_WRONLY)
        streams = [os.open(os.devnull, os.O_RDONLY), output, output]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    _set_environment(environment)
    # It may be ignored by whoever started the tests, and blocked by whoever forked first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.fsync = lambda fd: None  # a killed process loses nothing that it has written
    os.write(begun, b"1")
    os.close(begun)
    if prepare is not None:
        prepare()
    _python, kind, what, *sys.argv[1:] = command
    sys.argv[0] = what
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})
