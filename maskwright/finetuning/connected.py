"""Examples that belong together, on one side of a split: by shared texts, and by near copies.

Near copies are searched where words are as long as texts (proteins, DNA, molecules): families and
repeated measurements have members that differ in a few letters. Prose has them seldom, and is split
by its texts alone. N examples.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from maskwright.corpus.table_files import GROUP_MARK
from maskwright.finetuning.examples import Row
from maskwright.selection.near_duplicates import SHINGLE, Signer, hash_bands
from maskwright.selection.words import hash_words
from maskwright.tokenizer.words import has_long_words

Texts = Sequence[str]

_SIMILARITY = 0.6  # of the sets of k-mers: about one letter of 20 is another
_UNRELATED = 1000  # a k-mer of a text is in fewer than one of so many unrelated texts
_PAIRS_AT_ONCE = 100_000


def find_connected(texts: Sequence[Texts]) -> list[str]:
    """Return the group of each example: the smallest text of its connected component.

    The union-find is our own, because scipy would be a new requirement of `--task embedding`.
    """
    parents: dict[str, str] = {}

    def find(text: str) -> str:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = parents[parent]
            text = parent
        return text

    for each in texts:
        roots = [find(text) for text in each]
        for root in roots:
            parents[root] = min(roots)
    return [find(each[0]) for each in texts]


def link_near_copies(texts: Sequence[Texts]) -> list[list[str]]:
    """Return the texts of each example, and after them the texts that those are near copies of.

    Groups, which are no texts of a person, have none.
    """
    known = {text for each in texts for text in each if not text.startswith(GROUP_MARK)}
    originals = _find_originals(sorted(known)) if has_long_words(known) else {}
    return [[*each, *(one for text in each for one in originals.get(text, ()))] for each in texts]


def describe_near_copies(sets: Sequence[Sequence[Row]]) -> Iterator[str]:
    """Yield a line about near copies among examples, and one if they are on several sides.

    None about prose, of which pairs that share a text are connected, too.

    Args:
        sets: the training examples, those for validation, and perhaps those for a test.
    """
    texts = [row.texts for rows in sets for row in rows]
    if not has_long_words(text for each in texts for text in each):
        return
    linked = link_near_copies(texts)
    names = iter(find_connected(linked))
    groups = [[next(names) for _ in rows] for rows in sets]
    distinct = {
        (group, *row.texts)
        for rows, found in zip(sets, groups, strict=True)
        for row, group in zip(rows, found, strict=True)
    }
    sizes = Counter(group for group, *_ in distinct)
    if not (near := sum(size for size in sizes.values() if size > 1)):
        return
    yield f"{near:,} of {len(distinct):,} examples are near copies of others, of a few letters"
    for kind, rows, found in zip(("validation", "test"), sets[1:], groups[1:], strict=False):
        equal = {tuple(row.texts) for row in sets[0]}
        count = sum(
            group in {*groups[0]} and tuple(row.texts) not in equal
            for row, group in zip(rows, found, strict=True)
        )
        if count:
            rule = (
                f"{count:,} of {len(rows):,} {kind} examples are near copies of training examples"
            )
            yield f"{rule}: scores on new sequences will be lower. Hold out whole families."


def _find_originals(texts: Texts) -> dict[str, list[str]]:
    """Return for texts the smaller ones that they resemble; those of a cluster are connected."""
    size = _choose_size(texts) - SHINGLE + 1  # a shingle is of so many words that overlap
    parts = ([text[n : n + size] for n in range(max(1, len(text) - size + 1))] for text in texts)
    signatures = Signer()([hash_words(words) for words in parts])
    bands = hash_bands(signatures, _SIMILARITY, 0)
    bands = bands[np.lexsort((bands["key"], bands["value"]))]
    begins = np.flatnonzero(np.append(True, bands["value"][1:] != bands["value"][:-1]))
    leaders = np.repeat(bands["key"][begins], np.diff(np.append(begins, len(bands))))
    pairs = np.unique(np.stack([bands["key"], leaders], 1)[bands["key"] != leaders], axis=0)
    found: dict[str, list[str]] = {}
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        some = pairs[start : start + _PAIRS_AT_ONCE]
        alike = (signatures[some[:, 0]] == signatures[some[:, 1]]).mean(1) >= _SIMILARITY
        numbers: list[list[int]] = some[alike].tolist()
        for one, other in numbers:
            found.setdefault(texts[one], []).append(texts[other])
    return found


def _choose_size(texts: Texts) -> int:
    """Return the letters of a k-mer that two unrelated texts of this kind hardly share.

    Proteins have k-mers of 5 letters, DNA of 9: its letters say less.
    """
    counts = Counter(letter for text in texts for letter in text)
    total = counts.total()
    entropy = -sum(count / total * math.log(count / total) for count in counts.values())
    needed = math.log(_UNRELATED * max(1.0, total / len(texts)))
    return max(SHINGLE, min(math.ceil(needed / max(entropy, 0.1)), 32))
