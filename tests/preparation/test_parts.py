"""Parts that are there, and those that are not."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from maskwright.preparation.parts import PartFolder


@dataclass(frozen=True)
class Part:
    index: int


TEXTS = ["one\ntwo", 'a "quoted" \\ word', "낱말 \u2028 \x85 𝒳"]


@pytest.fixture
def parts(tmp_path: Path) -> PartFolder:
    return PartFolder(tmp_path, "body")


def test_texts_come_back(parts: PartFolder) -> None:
    parts.write(0, TEXTS, {"dropped": 3})
    parts.write(1, [], {"dropped": 1})
    assert [parts.read_texts(index) for index in (0, 1)] == [TEXTS, []]
    assert [facts["dropped"] for facts in parts.read_all_facts([1, 0])] == [1, 3]


def test_parts_that_are_whole_are_passed_over(parts: PartFolder, tmp_path: Path) -> None:
    for index in range(4):
        parts.write(index, TEXTS[: index % 3], {})
    (tmp_path / "00001.jsonl.zst").write_bytes(b"cut off")
    (tmp_path / ".00002.json").write_text("{")
    indices: list[int] = []
    left = parts.pass_over_written(map(Part, range(5)), indices)
    assert [part.index for part in left] == [1, 2, 4]
    assert indices == [0, 1, 2, 3, 4]
