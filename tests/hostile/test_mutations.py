"""Small changes to every kind of file that is read: one of our own errors, or a result.

The targets are those of `benchmarks.fuzz`, which tries millions of inputs; here are a few of each,
the same ones every time.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz.targets import TARGETS, refusing
from maskwright.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("default")  # of other libraries, about what they are given

_SLOW = {"model-config", "weights", "weights-index", "tokenizer", "tokenizer-config"}


@pytest.mark.parametrize("name", TARGETS)
def test_changed_files_are_refused_or_read(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    examples = 8 if name in _SLOW else 25

    @settings(
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        database=None,
    )
    @given(number=st.integers(0, 2**32))
    def try_inputs(number: int) -> None:
        random = Random(number)
        target.run(target.mutate(random.choice(seeds), random))

    for seed in seeds:
        target.run(seed)
    try_inputs()


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in _SLOW])
@given(content=st.binary(max_size=300))
@settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
def test_random_bytes_are_refused_or_read(name: str, content: bytes) -> None:
    TARGETS[name].run(content)


def test_errors_are_one_line_whatever_they_quote() -> None:
    with refusing():
        raise ConfigError("a\0", "b\x1b[31m", "breaks\nthe line")


def test_an_error_that_is_not_ours_would_be_a_finding() -> None:
    with pytest.raises(ZeroDivisionError), refusing():
        raise ZeroDivisionError
