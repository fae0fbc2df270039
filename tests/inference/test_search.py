"""Search finds the nearest texts, whatever blocks they are read in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.errors import InputError
from maskwright.inference.embed import Embedder
from maskwright.inference.search import search

QUERIES = ["The small horse", "a cat eats fish"]
TEXTS = ["The big horse.", " ", "A bird.", "the cat", "", "The big horse.", "every day", "seeds"]


@pytest.fixture
def run(workplace: Path) -> Path:
    return workplace / "runs" / "small"


@pytest.mark.parametrize("block", [1, 2, 3, 100])
@pytest.mark.parametrize("top", [1, 3, 100])
def test_the_nearest_texts_are_found_in_any_blocks(
    block: int, top: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maskwright.inference.text_model._MOST_TEXTS", block)
    found = search(run, QUERIES, iter(TEXTS), top=top)
    embed = Embedder(run)
    numbers = [number for number, text in enumerate(TEXTS, 1) if text.strip()]
    cosines = embed(QUERIES) @ embed([TEXTS[number - 1] for number in numbers]).T
    for matches, row in zip(found, cosines, strict=True):
        order = np.argsort(-row.round(5), kind="stable")[:top]  # equal texts: the earlier first
        assert [match.number for match in matches] == [numbers[place] for place in order]
        assert [match.text for match in matches] == [TEXTS[n.number - 1] for n in matches]
        assert [match.score for match in matches] == pytest.approx(row[order].tolist(), abs=1e-5)


def test_one_query_is_a_list_of_one(run: Path) -> None:
    [[best]] = search(run, "the cat", TEXTS, top=1, pooling="cls", batch_tokens=8)
    assert (best.number, best.text) == (4, "the cat")
    assert best.score == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("queries", "texts", "options", "named"),
    [
        ("", TEXTS, {}, "query"),
        ([], TEXTS, {}, "query"),
        (["a", " "], TEXTS, {}, "query"),
        ("a", [], {}, "no text"),
        ("a", ["", " "], {}, "no text"),
        ("a", TEXTS, {"top": 0}, "--top = 0"),
        ("a", TEXTS, {"batch_tokens": 0}, "--batch-tokens = 0"),
        ("a", TEXTS, {"pooling": "max"}, "pooling = max"),
    ],
)
def test_mistakes(
    queries: Any, texts: list[str], options: dict[str, Any], named: str, run: Path
) -> None:
    with pytest.raises(InputError, match=named):
        search(run, queries, texts, **options)
