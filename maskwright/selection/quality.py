"""Quality rules, which drop documents that are not running text, after Gopher, C4 and FineWeb.

Rae et al. 2021 (Scaling Language Models, appendix A.1), Raffel et al. 2020 (section 2.2), Penedo
et al. 2024 (FineWeb, section 3). Gopher's rule about English stop words is left out, because
`maskwright.selection.selector` identifies languages.
"""

import re
import unicodedata

import numpy as np

from maskwright.selection.config import QualityLimits
from maskwright.selection.words import Hashes, count_letters_a_word, find_members, join_hashes

_DIGITS = re.compile(r"\d")
_BULLETS = ("-", "*", "•", "‣", "▪", "●", "·", "\u2013")
_ELLIPSES = ("...", "…")
_CLOSING = ("Po", "Pe", "Pf")  # categories of punctuation without dashes and opening marks
_SHORT_LINE = 30  # characters; half as many where a character is a syllable or word
_JUDGED_WORDS = 1_000  # are enough to identify the script of a text
# Characters that are syllables: Hangul, Ethiopic. Thai and Lao end sentences with a blank.
_SYLLABLE = re.compile("[\u1100-\u137f\uac00-\ud7a3]")
_ENDLESS = re.compile("[\u0e00-\u0eff]")
_LETTER = re.compile(r"[^\W\d_]")
_TOP_NGRAMS = (2, 3, 4)
_REPEATED_NGRAMS = range(5, 11)
# C4 drops every line that contains "javascript", "privacy policy", … Here a line must also be
# phrased like a notice, or not be a sentence, so that articles about these subjects are kept.
_MAX_NOTICE = 300  # characters; a longer line is a paragraph about the subject
_TERMS = r"(?:privacy policy|terms (?:of (?:use|service)|and conditions))"
_BOILERPLATE = re.compile(
    r"\b(?:please enable|turn on|(?:site|page|app) (?:requires|needs)) javascript\b"
    r"|\bjavascript (?:is|must be|needs to be) (?:\w+ )?(?:required|needed|disabled|enabled|turned)"
    r"|lorem ipsum dolor|\ball rights reserved"
    r"|\b(?:site|website|page|we|our|accept(?: all)?)(?: uses?| use of)? cookies\b"
    r"|\bcookie (?:policy|settings|consent)"
    rf"|\b(?:our|read the|see the|agree to (?:the|our)) {_TERMS}"
    rf"|^[^.!?]*{_TERMS}[^.!?]*$",
    re.IGNORECASE,
)
# Every notice contains one of these; searching for them first is twenty times as fast.
_NOTICED = (
    "javascript", "cookie", "lorem ipsum", "rights reserved", "privacy policy", "terms of use",
    "terms of service", "terms and conditions",
)  # fmt: skip


def drop_boilerplate(text: str) -> str:
    """Return `text` without the lines that are website notices."""
    lowered = text.lower()
    if not any(each in lowered for each in _NOTICED):
        return text
    lines = text.split("\n")
    kept = (line for line in lines if len(line) > _MAX_NOTICE or not _BOILERPLATE.search(line))
    return "\n".join(kept).strip()


def find_fault(text: str, words: list[str], hashes: Hashes, limits: QualityLimits) -> str | None:
    """Return the first rule that a document of W `words`, with `hashes` [W], breaks, or None."""
    count = len(words)
    if limits.min_words and count < limits.min_words:
        return "too few words"
    if limits.max_words and count > limits.max_words:
        return "too many words"
    if not count:
        return None
    letters = count_letters_a_word(text, words)
    is_dense = letters > 1 or _share(words[:_JUDGED_WORDS], _SYLLABLE) > 0.5
    return (
        _judge_words(text, words, is_dense, limits)
        or _judge_lines([line for line in text.split("\n") if line.strip()], is_dense, limits)
        or _judge_repetition(words, hashes, letters, limits)
    )


def _judge_words(text: str, words: list[str], is_dense: bool, limits: QualityLimits) -> str | None:
    mean = sum(map(len, words)) / len(words)
    if limits.max_mean_word and mean > limits.max_mean_word:
        return "words too long"
    if limits.min_mean_word and mean < limits.min_mean_word and not is_dense:
        return "words too short"
    symbols = text.count("#") + text.count("…") + text.count("...")
    if limits.max_symbols and symbols > limits.max_symbols * len(words):
        return "too many symbols"
    if limits.max_digits and len(_DIGITS.findall(text)) > limits.max_digits * len(text):
        return "too many digits"
    if limits.min_letters:
        with_letter = sum(1 for word in words if word[0].isalpha() or _LETTER.search(word))
        if with_letter < limits.min_letters * len(words):
            return "too few words with letters"
    return None


def _share(texts: list[str], pattern: re.Pattern[str]) -> float:
    return sum(1 for text in texts if pattern.search(text)) / len(texts)


def _judge_lines(lines: list[str], is_dense: bool, limits: QualityLimits) -> str | None:
    count = len(lines)
    bullets = sum(line.startswith(_BULLETS) for line in lines)
    if limits.max_bullets and bullets > limits.max_bullets * count:
        return "too many bullets"
    broken_off = sum(line.endswith(_ELLIPSES) for line in lines)
    if limits.max_ellipses and broken_off > limits.max_ellipses * count:
        return "too many lines end with an ellipsis"
    repeated = count - len(set(lines))
    if limits.max_repeated_lines and repeated > limits.max_repeated_lines * count:
        return "repeated lines"
    if repeated and limits.max_repeated_line_characters:
        whole, once = sum(map(len, lines)), sum(map(len, set(lines)))
        if whole - once > limits.max_repeated_line_characters * whole:
            return "repeated lines"
    if count > 1:
        too_few_end = sum(map(_ends, lines)) < limits.min_ended_lines * count
        if too_few_end and _share(lines, _ENDLESS) < 0.5:
            return "few lines end like a sentence"
        shortest = _SHORT_LINE // 2 if is_dense else _SHORT_LINE
        short = sum(1 for line in lines if len(line) < shortest)
        if limits.max_short_lines and short > limits.max_short_lines * count:
            return "short lines"
    return None


def _ends(line: str) -> bool:
    """Return True if a line ends like a sentence, in any script."""
    last = line.rstrip()[-1]
    return last != "," and unicodedata.category(last) in _CLOSING


def _judge_repetition(
    words: list[str], hashes: Hashes, letters: int, limits: QualityLimits
) -> str | None:
    """Return the first repetition rule that is broken, or None. Shares are of the characters of all
    words; an n-gram is n * `letters` of `words`, as a word of the language may be several.
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    total = int(lengths.sum())
    joined = dict(join_hashes(hashes, [n * letters for n in (*_TOP_NGRAMS, *_REPEATED_NGRAMS)]))
    for sizes, most, less, measure, fault in (
        (_TOP_NGRAMS, limits.max_top_ngram, 0.02, _measure_top, "one phrase repeated"),
        (_REPEATED_NGRAMS, limits.max_repeated_ngrams, 0.01, _measure_repeated, "repeated phrases"),
    ):
        for n in sizes if most else ():
            limit, units = max(0.0, most - less * (n - sizes[0])), n * letters
            if units in joined and measure(joined[units], lengths, units) > limit * total:
                return fault
    return None


def _measure_top(ngrams: Hashes, lengths: np.ndarray, n: int) -> int:
    """Return the characters in the most frequent n-gram, if it occurs twice."""
    found, counts = np.unique(ngrams, return_counts=True)
    commonest = int(counts.argmax())
    if counts[commonest] == 1:
        return 0
    start = int((ngrams == found[commonest]).argmax())
    return int(counts[commonest]) * int(lengths[start : start + n].sum())


def _measure_repeated(ngrams: Hashes, lengths: np.ndarray, n: int) -> int:
    """Return the characters of words in n-grams that occurred before."""
    in_order = np.sort(ngrams)  # many times faster than argsort
    repeated = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    if not len(repeated):
        return 0
    places = find_members(ngrams, repeated)
    _, first = np.unique(ngrams[places], return_index=True)
    starts = np.delete(places, first)
    edges = np.zeros(len(lengths) + 1, np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + n, -1)
    return int(lengths[edges.cumsum()[:-1] > 0].sum())
