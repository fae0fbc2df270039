"""Regular expressions that every supported Python matches alike."""

import re

from tests.architecture.sources import read_sources

# A possessive or an atomic group. Before Python 3.11.5 it may loop forever (gh-106052).
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")


def test_no_group_is_possessive() -> None:
    found = {
        source.name: POSSESSIVE_GROUP.findall(source.text)
        for source in read_sources("maskwright", "benchmarks", "docs/tools")
    }
    assert {name: groups for name, groups in found.items() if groups} == {}


def test_possessive_groups_are_found() -> None:
    for pattern in (r"(?:a|b)*+", r"(a){1,2}+", r"(?>a)"):
        assert POSSESSIVE_GROUP.search(pattern)
    assert not POSSESSIVE_GROUP.search(r"[ab]*+(?:a)*[+]")
