"""Tallies add up to the tally of all, whoever counts what."""

import json

from hypothesis import given
from hypothesis import strategies as st

from maskwright.selection.selector import Tally

FATES = st.lists(st.tuples(st.sampled_from(["kept", "a", "b"]), st.text(max_size=8)), max_size=40)


def count(documents: list[tuple[str, str]]) -> Tally:
    tally = Tally()
    for fate, text in documents:
        tally.read += 1
        tally.lengths[len(text).bit_length()] += 1
        if fate == "kept":
            tally.keep(text)
        else:
            tally.drop(fate, text)
    return tally


@given(FATES, FATES)
def test_parts_add_up_in_any_order(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    whole, parts, reverse = count(first + second), count(first), count(second)
    parts.add(count(second))
    reverse.add(count(first))
    assert parts == whole == reverse


@given(FATES)
def test_json_keeps_all(documents: list[tuple[str, str]]) -> None:
    tally = count(documents)
    assert Tally.from_plain(json.loads(json.dumps(tally.to_plain()))) == tally
