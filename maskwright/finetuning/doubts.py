"""Lines about examples that surprise: joined labels, contradictions, repetitions, shared texts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from maskwright.corpus.table_files import fold_name
from maskwright.finetuning.examples import Row
from maskwright.finetuning.split import count_repeated, spell_texts
from maskwright.formatting import count_noun
from maskwright.tokenizer.words import has_long_words

_MAX_SHOWN = 5


def join_counts(counts: Counter[str]) -> Counter[str]:
    """Return the counts of labels whose spellings differ by width or case as those of one label.

    Its name is the most frequent spelling, among equals the first in order.
    """
    found: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        found.setdefault(fold_name(name), name)
    joined = Counter[str]()
    for name, count in counts.items():
        joined[found[fold_name(name)]] += count
    return joined


def describe_doubts(
    sets: Sequence[Sequence[Row]], labels: Sequence[Sequence[Sequence[str]]], names: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each kind of doubtful examples.

    Args:
        sets: the training examples, those for validation, and perhaps those for a test.
        labels: the labels of each example of each set; empty for numbers and answers.
        names: the labels of the task.
    """
    if has_long_words(text for row in sets[0] for text in row.texts):
        yield "words are as long as texts: the bag of words is one of 1 to 3 characters"
    yield from _describe_joined((name for each in labels for row in each for name in row), names)
    every = [row for rows in sets for row in rows]
    given = [tuple(map(fold_name, row)) for each in labels for row in each]
    kinds: dict[tuple[str, ...], set[object]] = {}
    for row, label in zip(every, given, strict=True):
        kinds.setdefault(spell_texts(row), set()).add(label)
    if against := sum(len(found) > 1 for found in kinds.values()):
        rule = f"{count_noun(against, 'text')} of {len(kinds):,} have contradicting labels"
        yield f"{rule}: no model can give both. Decide for one, or use --task multilabel."
    trained = list(zip(map(spell_texts, sets[0]), given, strict=False))
    if repeated := len(trained) - len({*trained}):
        noun = "training example repeats" if repeated == 1 else "training examples repeat"
        yield f"{repeated:,} of {len(trained):,} {noun} an earlier one."
    known, place = [*sets[0]], "training"
    for kind, rows in zip(("validation", "test"), sets[1:], strict=False):
        if count := count_repeated(known, rows):
            rule = f"{count:,} of {len(rows):,} {kind} examples are also in {place}"
            yield f"{rule}: scores on new text will be lower. Remove them."
        known, place = [*known, *rows], "training or validation"


def _describe_joined(given: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield a line about the spellings that were read as another label."""
    folded = {fold_name(name): name for name in names}
    others: dict[str, list[str]] = {}
    for name in sorted({*given} - {*names}):
        if label := folded.get(fold_name(name)):
            others.setdefault(label, []).append(name)
    if others:
        shown = [f"{' and '.join(found)} as {name}" for name, found in others.items()]
        more = f", and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
        rule = "labels that differ by width or case only are one"
        yield f"{rule}: {', '.join(shown[:_MAX_SHOWN])}{more}. If they are two, rename one."
