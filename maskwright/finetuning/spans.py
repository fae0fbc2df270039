"""Entities in tagged words, and how many of them are found.

Tags are ``O`` and ``PREFIX-KIND`` with the prefixes of IO, IOB, BIO, BIOES, BILOU and BMES; a tag
without such a prefix is a kind of its own. What is one entity follows CoNLL's ``conlleval`` (Tjong
Kim Sang and De Meulder, 2003), as seqeval's default does: an entity begins where its tag says so,
after another kind, and after ``O``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OUTSIDE = "O"
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")
_PREFIXES = frozenset("BIESLUM")


class Entity(NamedTuple):
    """Words `start` to `end` (exclusive) of a sentence."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class SpanScores:
    """Of the entities that are there and those that were found.

    Attributes:
        num_true: that are there.
        num_found: that the model says are there.
        num_right: of these, so many are, with kind, beginning and end.
    """

    num_true: int
    num_found: int
    num_right: int

    @property
    def precision(self) -> float:
        return self.num_right / self.num_found if self.num_found else 0.0

    @property
    def recall(self) -> float:
        return self.num_right / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        both = self.num_true + self.num_found
        return 2 * self.num_right / both if both else 0.0


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and kind of a tag: ``("B", "PER")``, ``("I", "NOUN")`` of one that has no prefix."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, kind = tag.partition("-")
    return (prefix, kind) if dash and prefix in _PREFIXES else ("I", tag)


def marks_entities(tags: Iterable[str]) -> bool:
    """Whether some words are in no entity, or tags say where entities begin or end.

    Parts of speech are no entities: every word has one, and two nouns in a row are two.
    """
    return any(tag == OUTSIDE or split_tag(tag)[1] != tag for tag in tags)


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, in order."""
    entities: list[Entity] = []
    begin, before, kind_before = 0, OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        is_new = prefix in _BEGINS or before in _ENDS or kind != kind_before
        if is_new or prefix == OUTSIDE:
            if before != OUTSIDE:
                entities.append(Entity(kind_before, begin, place))
            begin = place
        before, kind_before = prefix, kind
    return entities


def score_spans(
    true: Iterable[Sequence[str]], found: Iterable[Sequence[str]]
) -> tuple[SpanScores, dict[str, SpanScores]]:
    """All entities of all sentences together, and those of each kind that is there or found.

    Args:
        true, found: the tags of each sentence, as many in one as in the other.
    """
    counts: tuple[Counter[str], Counter[str], Counter[str]] = (Counter(), Counter(), Counter())
    for right_tags, found_tags in zip(true, found, strict=True):
        there, said = set(find_entities(right_tags)), set(find_entities(found_tags))
        for counter, entities in zip(counts, (there, said, there & said), strict=True):
            counter.update(entity.kind for entity in entities)
    kinds = sorted(counts[0] | counts[1])
    each = {kind: SpanScores(*(counter[kind] for counter in counts)) for kind in kinds}
    return SpanScores(*(counter.total() for counter in counts)), each
