"""The split rule: which documents are held out for validation.

First the rule, which needs nothing; then how its share is chosen from the files of a `Work`.

The fingerprint of a document decides, so with the same fraction its split is the same in every run,
corpus and order. Adding text changes no other split, and the validation set of a larger fraction
contains that of a smaller one. The user may also name the files to hold out.

The default share is one of the bytes; if that holds out less than half of the tokens that it aims
at, as of some scripts and of few documents, more documents are held out. With only a few documents,
a hash may hold out almost nothing or nearly all. If the held-out text is small and less than half
of its share, or more than twice its share, the end of the longest document there, cut at a line
end, makes up the share.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal, NamedTuple

import numpy as np

from maskwright.corpus.documents import fingerprint_text
from maskwright.corpus.sources import explain_nothing
from maskwright.errors import CorpusError
from maskwright.preparation.work import EXACT, READ, Work, add_counts, first_key

Split = Literal["train", "valid"]
_MIN_END_CHARACTERS = 200


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Return True if the document with this fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64


def cut_tail(text: str, num_characters: int) -> tuple[str, str]:
    """Cut about `num_characters`, at most half, off the end, at a line end or else at a blank.

    The end is at most twice as long as asked for, or `_MIN_END_CHARACTERS` characters.
    """
    asked = min(max(num_characters, 1), len(text) // 2)
    place = len(text) - asked
    first = len(text) - min(max(2 * asked, _MIN_END_CHARACTERS), len(text) // 2)
    for blank in ("\n", " "):
        found = text.rfind(blank, first, place)
        if found > 0:
            place = found
            break
    return text[:place].strip(), text[place:].strip()


@dataclass(frozen=True, slots=True)
class Cut:
    """A document whose end is held out, and the number of characters of that end."""

    block: int
    index: int
    fingerprint: int
    num_characters: int


@dataclass(frozen=True)
class Splits:
    """The rule that holds out documents.

    Attributes:
        valid_fraction: share of the documents that are not in ``corpus.valid_text``.
        cut: the document that is cut in two; None if there is none.
    """

    valid_fraction: float
    cut: Cut | None = None

    def choose(self, fingerprint: int) -> Split:
        """Return the split of a document that is not in ``corpus.valid_text``."""
        return "valid" if is_validation(fingerprint, self.valid_fraction) else "train"

    def divide(self, text: str) -> list[tuple[Split, str]]:
        """Return the parts of a document that is not in ``corpus.valid_text``; a split each."""
        fingerprint = fingerprint_text(text)
        if self.cut is not None and self.cut.fingerprint == fingerprint:  # also of a duplicate
            head, tail = cut_tail(text, self.cut.num_characters)
            return [("train", head), ("valid", tail)]
        return [(self.choose(fingerprint), text)]

    def divide_block(
        self, work: Work, block: int
    ) -> Iterator[tuple[str, tuple[str, int] | None, list[tuple[Split, str]]]]:
        """Yield each document of a block, why it is dropped (`Work.read_drops`), and its parts."""
        dropped, is_named = work.read_drops(block), work.is_held_out(block)
        for index, text in enumerate(work.read_texts(block)):
            if index in dropped:
                yield text, dropped[index], []
            else:
                yield text, None, [("valid", text)] if is_named else self.divide(text)


MIN_VALID_FRACTION = 0.01
_MAX_VALID_FRACTION = 0.1
_VALID_TOKENS = 20_000  # that the default share aims at
_BYTES_PER_TOKEN = _CHARACTERS_PER_TOKEN = 4
_MIN_VALID_CHARACTERS = 2_000  # of validation text, however small a share this is
_WHOLE_TOKENS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HALF_TOKENS = re.compile(r"[\uac00-\ud7a3]")


def choose_valid_fraction(sizes: Iterable[int]) -> float:
    """Return the default share of documents to hold out, given their sizes in bytes of UTF-8. Stops
    reading sizes at 8 MB, where the smallest share is enough.
    """
    enough, num_bytes = _BYTES_PER_TOKEN * _VALID_TOKENS, 0
    for size in sizes:
        num_bytes += size
        if num_bytes >= enough / MIN_VALID_FRACTION:
            break
    share = round(enough / max(num_bytes, 1), 4)
    return min(_MAX_VALID_FRACTION, max(MIN_VALID_FRACTION, share))


def estimate_tokens(text: str) -> float:
    """Return about the number of tokens of a text: one for an ideograph, a kana, two syllables of
    Hangul, or four other characters.
    """
    if text.isascii():
        return len(text) / _CHARACTERS_PER_TOKEN
    num_whole, num_half = len(_WHOLE_TOKENS.findall(text)), len(_HALF_TOKENS.findall(text))
    num_others = len(text) - num_whole - num_half
    return num_whole + num_half / 2 + num_others / _CHARACTERS_PER_TOKEN


def raise_valid_fraction(
    fraction: float, enough: float, documents: Iterable[tuple[int, float]]
) -> float:
    """Return the share to hold out if `fraction` yields less than half of `enough` tokens.

    Further documents, given as fingerprints and tokens, are held out until there are enough, or the
    next one is so long that there would be more than twice as many.
    """
    beyond = list[tuple[int, float]]()
    num_tokens = 0.0
    for fingerprint, size in documents:
        if is_validation(fingerprint, fraction):
            num_tokens += size
        elif is_validation(fingerprint, _MAX_VALID_FRACTION):
            beyond.append((fingerprint, size))
    for fingerprint, size in sorted(beyond) if num_tokens < enough / 2 else ():
        if num_tokens >= enough or num_tokens + size > 2 * enough:
            break
        num_tokens += size
        fraction = (int(fingerprint / 2**64 * 10_000) + 1) / 10_000
    return fraction


class Share(NamedTuple):
    """The share of the documents that the hash holds out.

    Attributes:
        fraction: the share.
        least: the fewest held-out characters that are enough.
        aim: held-out characters to aim at; 0: the share of all characters.
    """

    fraction: float
    least: int
    aim: int = 0


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A document that is kept: its place, its fingerprint and its sizes."""

    block: int
    index: int
    fingerprint: int
    num_characters: int
    num_bytes: int


Longest = dict[Split, KeptKey]  # the longest document of each split


def fix_splits(work: Work) -> Splits:
    """Return the splits of the documents that are left after deduplication.

    Reads only the first keys (8 MB of text), unless far too little or too much text is held out.
    Raise CorpusError if no document is left, or too little text to hold some of it out.
    """
    share = _choose_share(work)
    splits, blocks = Splits(share.fraction), range(work.plan.num_held_out, len(work.plan.blocks))
    longest, sizes = Longest(), Counter[Split]()
    most_valid, fits = 0.0, False
    for kept in _list_kept(work, blocks):
        split = splits.choose(kept.fingerprint)
        if split not in longest or kept.num_characters > longest[split].num_characters:
            longest[split] = kept
        sizes[split] += kept.num_characters
        most_valid = max(_MIN_VALID_CHARACTERS, 2 * share.aim, 2 * share.fraction * sizes.total())
        is_enough = share.least <= sizes["valid"] <= most_valid or not share.fraction
        fits = is_enough and "train" in longest
        if fits and not share.aim:
            break
    # The share fits: documents are held out whole.
    if fits:
        return splits
    if not longest:
        raise CorpusError(explain_nothing(work.plan.paths, "train", _count_dropped(work, blocks)))
    # Too little, too much or all is held out: the end of a document makes up the share.
    cut = _cut_longest(work, share, longest, sizes, sizes["valid"] > most_valid)
    if cut is None and len(longest) < 2:
        raise CorpusError(
            f"{', '.join(work.plan.paths)}: {sizes.total()} characters are too few to hold some "
            "out for validation. Give more text."
        )
    return Splits(share.fraction, cut)


def _cut_longest(
    work: Work, share: Share, longest: Longest, sizes: Counter[Split], is_too_much: bool
) -> Cut | None:
    """Return the end to hold out of the longest document of the split that has too much text; None
    if the share is better without a cut, or the document cannot be cut.
    """
    is_too_much = is_too_much or "train" not in longest
    kept = longest["valid" if is_too_much else "train"]
    text = work.read_text(kept.block, kept.index)
    aim = share.aim or round(share.fraction * sizes.total())
    if work.plan.config.corpus.valid_fraction is None:  # few bytes of some scripts are few tokens
        enough = _VALID_TOKENS * len(text) / estimate_tokens(text)
        enough = min(_MAX_VALID_FRACTION * sizes.total(), enough)
        aim = aim if aim >= enough / 2 else round(enough)
    if is_too_much:  # without this document, what is missing to as much as would be enough
        num_missing = min(max(aim, _MIN_VALID_CHARACTERS), 2 * aim)
        num_missing -= sizes["valid"] - kept.num_characters
        # If nothing is missing, other documents are the reason.
        is_settled = num_missing <= 0 or sizes["valid"] <= 2 * aim
    else:
        num_missing = aim - sizes["valid"]
        is_settled = num_missing <= sizes["valid"]
    if (is_settled and len(longest) == 2) or not all(cut_tail(text, num_missing)):
        return None
    return Cut(kept.block, kept.index, kept.fingerprint, num_missing)


def _choose_share(work: Work) -> Share:
    config, num_held_out = work.plan.config.corpus, work.plan.num_held_out
    if config.valid_text:
        if next(_list_kept(work, range(num_held_out)), None) is None:
            counts = add_counts(work.facts(READ, n)["counts"] for n in range(num_held_out))
            raise CorpusError(explain_nothing(config.valid_text, "validate", counts))
        return Share(0.0, 0)
    if config.valid_fraction is not None:
        return Share(config.valid_fraction, _MIN_VALID_CHARACTERS)
    blocks, num_valid = range(len(work.plan.blocks)), 0
    least = _CHARACTERS_PER_TOKEN * _VALID_TOKENS // 2
    fraction = choose_valid_fraction(kept.num_bytes for kept in _list_kept(work, blocks))
    for kept in _list_kept(work, blocks):
        num_valid += kept.num_characters if is_validation(kept.fingerprint, fraction) else 0
        if num_valid >= least:
            return Share(fraction, least)
    # Of so little text, tokens are estimated, not only characters counted.
    num_characters, documents = 0, list[tuple[int, float]]()
    for block in blocks:
        stays = {kept.index: kept for kept in _list_kept(work, [block])}
        for index, text in enumerate(work.read_texts(block)):
            if index in stays:
                documents.append((stays[index].fingerprint, estimate_tokens(text)))
                num_characters += stays[index].num_characters
    num_tokens = sum(size for _, size in documents)
    enough = min(_VALID_TOKENS, _MAX_VALID_FRACTION * num_tokens)
    aim = max(round(enough / max(num_tokens, 1) * num_characters), 1)
    return Share(raise_valid_fraction(fraction, enough, documents), (aim + 1) // 2, aim)


def _list_kept(work: Work, blocks: Iterable[int]) -> Iterator[KeptKey]:
    for block in blocks:
        keys = work.read_kept_keys(block)
        indices = (keys["key"] - np.uint64(first_key(block))).tolist()
        fields = (keys[field].tolist() for field in ("fingerprint", "characters", "bytes"))
        yield from map(KeptKey, repeat(block), indices, *fields)


def _count_dropped(work: Work, blocks: range) -> Counter[str]:
    counts = add_counts(facts["counts"] for facts in work.all_facts(READ))
    for stage, by in chain.from_iterable(work.read_drops(block).values() for block in blocks):
        reason = "duplicate" if stage == EXACT else "near duplicate"
        counts[f"{reason} of held-out text" if work.is_held_out(by) else reason] += 1
    return counts
