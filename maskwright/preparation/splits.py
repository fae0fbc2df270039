"""The two splits of a text, neither of them empty.

Documents are held out by hash, unless the user names the files to hold out. That leaves nothing or
next to nothing to validate on when there are only a few. If it is less than half of its share of
the text, and little at that, the end of the longest document makes up the share, cut at a line end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from maskwright.corpus.fingerprints import fingerprint_text
from maskwright.corpus.stream import (
    MOST_BYTES_COUNTED,
    Split,
    choose_valid_fraction,
    explain_nothing,
    is_validation,
)
from maskwright.errors import CorpusError
from maskwright.preparation.work import READ, Work, add_counts

_ENOUGH_CHARACTERS = 2_000  # to validate on, however small a share of the text


@dataclass(frozen=True)
class Splits:
    """Which documents are held out.

    Attributes:
        valid_fraction: of all documents that are not held out by name.
        cut: the block and the index of the document whose end is held out, and the characters of
            that end; None if there is none.
    """

    valid_fraction: float
    cut: tuple[int, int, int] | None = None

    def choose(self, fingerprint: int) -> Split:
        """Return the split of a document that is not held out by name."""
        return "valid" if is_validation(fingerprint, self.valid_fraction) else "train"

    def cuts(self, block: int, index: int) -> bool:
        """Return True if the end of this document is held out."""
        return self.cut is not None and [*self.cut[:2]] == [block, index]  # JSON has no tuples

    def divide(self, block: int, index: int, text: str) -> list[tuple[Split, str]]:
        """Return the parts of a document that is not held out by name, each with its split."""
        if self.cut is not None and self.cuts(block, index):
            head, tail = cut_tail(text, self.cut[2])
            return [("train", head), ("valid", tail)]
        return [(self.choose(fingerprint_text(text)), text)]


@dataclass(frozen=True)
class _Document:
    block: int
    index: int
    fingerprint: int
    characters: int
    num_bytes: int


def settle_splits(work: Work) -> Splits:
    """Return the splits of what stays after the search for duplicates.

    Keys are read as far as they matter: 8 MB of text, unless hardly any is held out.

    Raises:
        CorpusError: no document is left to train or validate on, or too little text to hold some of
            it out.
    """
    config, blocks = work.plan.config.corpus, len(work.plan.blocks)
    if config.valid_text:
        if next(_list_kept(work, range(work.plan.num_held_out)), None) is None:
            counts = add_counts(
                work.facts(READ, n)["counts"] for n in range(work.plan.num_held_out)
            )
            raise CorpusError(explain_nothing(config.valid_text, "validate", counts))
        splits = Splits(0.0)
    elif config.valid_fraction is not None:
        splits = Splits(config.valid_fraction)
    else:
        num_bytes = 0
        for document in _list_kept(work, range(blocks)):
            num_bytes += document.num_bytes
            if num_bytes >= MOST_BYTES_COUNTED:
                break
        splits = Splits(choose_valid_fraction(num_bytes))
    longest: _Document | None = None  # for training
    num_characters = num_valid = num_held_out = 0
    for document in _list_kept(work, range(work.plan.num_held_out, blocks)):
        num_characters += document.characters
        if splits.choose(document.fingerprint) == "valid":
            num_valid += document.characters
            num_held_out += 1
        elif longest is None or document.characters > longest.characters:
            longest = document
        enough = num_valid >= _ENOUGH_CHARACTERS or not splits.valid_fraction
        if enough and longest is not None:
            return splits
    if longest is None:
        counts = add_counts(facts["counts"] for facts in work.all_facts(READ))
        if num_held_out:
            counts["held out for validation"] = num_held_out
        raise CorpusError(explain_nothing(work.plan.paths, "train", counts))
    if not splits.valid_fraction:
        return splits
    num_missing = round(splits.valid_fraction * num_characters) - num_valid
    if num_valid and num_valid >= num_missing:
        return splits
    if all(cut_tail(_read_text(work, longest), num_missing)):
        return Splits(splits.valid_fraction, (longest.block, longest.index, num_missing))
    if num_valid:
        return splits
    raise CorpusError(
        f"{', '.join(work.plan.paths)}: {num_characters} characters are too few to hold some out "
        "for validation. Give more text."
    )


def _list_kept(work: Work, blocks: range) -> Iterator[_Document]:
    for block in blocks:
        keys = work.read_kept_keys(block)
        fields = (keys[field].tolist() for field in ("key", "high", "characters", "bytes"))
        for key, *values in zip(*fields, strict=True):
            yield _Document(block, key - (block << 32), *values)


def _read_text(work: Work, document: _Document) -> str:
    return next(islice(work.read_texts(document.block), document.index, None))


def cut_tail(text: str, num_characters: int) -> tuple[str, str]:
    """Cut about `num_characters`, at most half, off the end: at a line end, else at a blank."""
    place = len(text) - min(max(num_characters, 1), len(text) // 2)
    for blank in ("\n", " "):
        found = text.rfind(blank, len(text) // 4, place)
        if found > 0:
            place = found
            break
    return text[:place].strip(), text[place:].strip()
