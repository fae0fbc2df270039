"""Each rule of quality drops what it is for, and nothing that reads like text."""

from dataclasses import fields, replace

import pytest

from maskwright.errors import ConfigError
from maskwright.selection.config import QualityLimits
from maskwright.selection.quality import drop_boilerplate, find_fault
from maskwright.selection.units import WordHashes, split_words

PROSE = """The river rises in the hills north of the town and flows for ninety miles to the sea.
Its banks were settled long before the first bridge was built by an order of travelling monks.
Today it carries grain, timber and, in a dry summer, hardly any water at all through six locks.
A poet who lived nearby complained that its fog had ruined two manuscripts and one marriage."""
OFF = QualityLimits(**{field.name: 0 for field in fields(QualityLimits)})


def judge(text: str, limits: QualityLimits) -> str | None:
    words = split_words(text)
    return find_fault(text, words, WordHashes().of(words), limits)


def test_prose_is_kept() -> None:
    assert judge(PROSE, QualityLimits()) is None
    assert judge("가나다 라마바 " * 3 + "\n".join(f"문장 하나 둘 {n}입니다." for n in range(40)),
                 replace(QualityLimits(), max_top_ngram=0, max_repeated_ngrams=0,
                         min_mean_word=1, max_short_lines=0)) is None  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "limit", "text"),
    [
        ("too few words", "min_words", "Only a few words."),
        ("too many words", "max_words", "word " * 60),
        ("words too short", "min_mean_word", "a b c d e f g h"),
        ("words too long", "max_mean_word", "pneumonoultramicroscopic volcanoconiosis"),
        ("too many symbols", "max_symbols", "#one #two # # three"),
        ("too many digits", "max_digits", "12345 67890 and 13579 24680"),
        ("too few words with letters", "min_letters", "one 2 3 4 five 6 7"),
        ("too many bullets", "max_bullets", "- one\n- two\n• three"),
        ("too many lines that break off", "max_ellipses", "read more...\nsee all…\nend."),
        ("repeated lines", "max_repeated_lines", "the same\nthe same\nthe same\nanother"),
        ("repeated lines", "max_repeated_line_characters", f"{PROSE}\nno\n{PROSE}\nno"),
        ("lines without an end", "min_ended_lines", "Home\nAbout us\nContact\nImprint"),
        ("short lines", "max_short_lines", "Yes.\nNo.\nPerhaps.\n" + PROSE.split("\n")[0]),
        ("one phrase over and over", "max_top_ngram", f"{PROSE} " + "buy now " * 60),
        ("repeated phrases", "max_repeated_ngrams", f"{PROSE} {PROSE}"),
    ],
)
def test_each_rule_alone(reason: str, limit: str, text: str) -> None:
    value = {"min_words": 5, "max_words": 50}.get(limit, getattr(QualityLimits(), limit))
    limits = replace(OFF, **{limit: value})
    assert judge(text, limits) == reason
    assert judge(text, OFF) is None
    assert judge(PROSE, replace(limits, max_words=0)) is None


def test_scripts_without_blanks_have_no_short_words() -> None:
    text = "这是一段用来测试的中文文本，它没有空格。" * 3
    limits = replace(OFF, min_mean_word=3.0)
    assert judge(text, limits) is None


def test_notices_go_and_paragraphs_about_them_stay() -> None:
    text = f"{PROSE}\nThis site uses cookies.\nPlease enable JavaScript to go on."
    assert drop_boilerplate(text) == PROSE
    paragraph = "JavaScript is a language that was written in ten days. " * 8
    assert drop_boilerplate(paragraph.strip()) == paragraph.strip()


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_words = -1 must not be negative"):
        QualityLimits(min_words=-1)


def test_a_strict_limit_does_not_drop_what_repeats_nothing() -> None:
    once = " ".join(f"word{n}" for n in range(60))
    assert judge(once, replace(OFF, max_top_ngram=0.01, max_repeated_ngrams=0.01)) is None
