"""Everything that is read: valid files, valid files with changes, and random bytes.

A few of each, the same ones every time.
"""

import re
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.corpus.readers import wikitext
from maskwright.errors import MaskwrightError
from tests.hostile.fuzzing import pages
from tests.hostile.fuzzing.pages import SlowError, read_page
from tests.hostile.fuzzing.targets import TARGETS, refusing

pytestmark = pytest.mark.filterwarnings("default")  # of other libraries, about what they are given
every_target = pytest.mark.parametrize("name", list(TARGETS))


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """A hang is a failure."""

    def fail(signum: int, frame: object) -> None:
        raise AssertionError(f"took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@cache
def seeds_of(name: str) -> Sequence[bytes]:
    return TARGETS[name].seeds()


@every_target
def test_valid_files_are_read(name: str) -> None:
    assert seeds_of(name)
    for seed in seeds_of(name):
        TARGETS[name].run(seed)


@every_target
@settings(max_examples=25, database=None)
@given(number=st.integers(0, 2**32 - 1))
def test_changed_files_are_read_or_refused(name: str, number: int) -> None:
    draw = Random(number)
    content = draw.choice(seeds_of(name))
    for _ in range(draw.choice((1, 1, 2, 3))):
        content = TARGETS[name].mutate(content, draw)
    with time_limit(20):
        TARGETS[name].run(content)


@every_target
@settings(max_examples=8, database=None)
@given(content=st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(name: str, content: bytes) -> None:
    with time_limit(20):
        TARGETS[name].run(content)


def test_a_target_notices_errors_that_are_not_ours() -> None:
    class UglyError(MaskwrightError):
        def __str__(self) -> str:
            return "two\nlines"

    with refusing():
        raise MaskwrightError("fine")
    with pytest.raises(ZeroDivisionError), refusing():
        raise ZeroDivisionError
    with pytest.raises(AssertionError, match="not one printable line"), refusing():
        raise UglyError


def test_a_page_that_takes_quadratic_time_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    read_page(b"{{lang|fr|" + b" " * 8_000 + b"}} {{unclosed")
    monkeypatch.setattr(pages, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(wikitext, "_NAMED", re.compile(r"\s*[\w ]+="))
    with pytest.raises(SlowError, match="seconds for"):
        read_page(b"{{lang|fr|" + b" " * 12_000 + b"}} {{unclosed")
