"""The figures of the plan stay within their limits, which come down until the aims are reached."""

import ast
import json
import sys

import pytest

from tests.architecture.figures import find_circles, functions_of, measure, untyped_functions
from tests.forked import Forked

# By figure: the limit of today, and the aim of the plan (research/decisions/0024).
AT_MOST = {
    "files that pretrain runs": (108, None),
    "files from text to gradient": (72, 58),
    "files that name max_minutes": (5, 5),
    "files that name replaced tokens": (7, 8),
    "late own imports": (7, 9),
    "import circles": (0, 0),
    "dict[str, Any]": (34, 41),
}
AT_LEAST = {"typed functions in %": (100, 100)}


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    # A process of its own: what other tests have cached would not be called again.
    with Forked([sys.executable, "-m", "tests.architecture.figures", "--journey"]) as process:
        executed, error = process.communicate()
    assert process.returncode == 0, error
    return {name: figure.value for name, figure in measure(json.loads(executed)).items()}


def test_every_figure_has_a_limit(figures: dict[str, float]) -> None:
    sizes = {"package lines", "package files", "benchmark lines"}  # reported, and not limited
    assert figures.keys() == AT_MOST.keys() | AT_LEAST.keys() | sizes


@pytest.mark.parametrize("name", AT_MOST)
def test_figure_is_at_most(name: str, figures: dict[str, float]) -> None:
    limit, _aim = AT_MOST[name]
    assert figures[name] <= limit


@pytest.mark.parametrize("name", AT_LEAST)
def test_figure_is_at_least(name: str, figures: dict[str, float]) -> None:
    limit, _aim = AT_LEAST[name]
    assert figures[name] >= limit


def test_the_journey_passes_every_station(figures: dict[str, float]) -> None:
    assert figures["files from text to gradient"] > 20
    assert figures["files that pretrain runs"] > figures["files from text to gradient"]


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"e"}}
    assert find_circles(graph) == [["b", "c"], ["e"]]


def test_functions_without_types_are_found() -> None:
    text = "def f(a: int) -> int: ...\ndef g(a) -> int: ...\nasync def h(*, b: int): ...\n"
    tree = ast.parse(text)
    assert len(list(functions_of(tree))) == 3
    assert list(untyped_functions(tree, "x.py")) == ["x.py:2 g", "x.py:3 h"]
