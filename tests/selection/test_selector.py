"""The steps of selection one after the other."""

import pytest

from maskwright.errors import ConfigError
from maskwright.selection.config import QualityLimits, SelectionConfig
from maskwright.selection.contamination import EvaluationTexts
from maskwright.selection.selector import Selector, Tally, load_identifier

ENGLISH = "The river flows through the town and goes on to the sea."
GERMAN = "Der Fluss fließt durch die Stadt und dann weiter bis ans Meer."
KOREAN = "강은 도시를 지나 바다로 흘러간다."


def test_nothing_is_asked_for() -> None:
    assert not SelectionConfig().does_anything
    tally = Tally()
    kept = Selector(SelectionConfig(), None)(" a \n", tally)
    assert kept is not None
    assert kept.text == "a"  # cleaned all the same
    assert tally == Tally()  # of no interest


def test_one_language_is_kept() -> None:
    tally, select = Tally(), Selector(SelectionConfig(language="de"), None)
    assert [select(text, tally) is not None for text in (ENGLISH, GERMAN, KOREAN)] == [
        False,
        True,
        False,
    ]
    assert tally.dropped == {"another language": 2}
    assert tally.languages == {"en": 1, "de": 1, "ko": 1}
    assert tally.samples.keys() == {"another language"}
    unsure = Selector(SelectionConfig(language="de", language_confidence=1.0), None)
    assert unsure("Berlin Hotel Taxi", Tally()) is None


def test_an_unknown_language_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"select\.language = xq is not known"):
        load_identifier("xq")
    with pytest.raises(ConfigError, match="code of two or three letters"):
        SelectionConfig(language="English")


def test_what_was_decoded_wrongly_is_mended_and_spelling_is_not() -> None:
    tally, select = Tally(), Selector(SelectionConfig(repair=True), None)
    mended = select("schÃ¶n, daÃŸ Sie da sind", tally)
    assert mended is not None
    assert mended.text == "schön, daß Sie da sind"
    assert tally.repaired["repaired by ftfy"] == 1
    untouched = "“curled” quotes, ﬁne ligatures, ＷＩＤＥ"
    kept = select(untouched, tally)
    assert kept is not None
    assert kept.text == untouched


def test_rules_count_by_their_names() -> None:
    config = SelectionConfig(quality=True, limits=QualityLimits(min_words=5, min_ended_lines=0))
    tally, select = Tally(), Selector(config, EvaluationTexts([ENGLISH]))
    for text in ("Too short.", f"{ENGLISH} And so on.", "Another river goes its own way."):
        select(text, tally)
    assert tally.dropped == {"quality: too few words": 1, "contains evaluation text": 1}
    assert tally.read == 3


def test_what_is_mended_tells_what_it_was() -> None:
    select = Selector(SelectionConfig(repair=True, drop_boilerplate=True), None)
    for text, original in (
        ("schÃ¶n, daÃŸ Sie", "schÃ¶n, daÃŸ Sie"),
        ("The end. \n\n\nWe use cookies.", "The end.\n\nWe use cookies."),  # cleaned
        (" The  end. ", None),
    ):
        kept = select(text, Tally())
        assert kept is not None
        assert kept.original == original


def test_what_is_held_out_by_name_is_cleaned_and_no_more() -> None:
    config = SelectionConfig(repair=True, language="de", quality=True, near_duplicates=0.8)
    tally, select = Tally(), Selector(config, EvaluationTexts([ENGLISH]))
    kept = select(f" {ENGLISH}  schÃ¶n ", tally, cleans_only=True)
    assert kept is not None
    assert (kept.text, kept.original) == (f"{ENGLISH} schÃ¶n", None)
    assert len(kept.hashes) == 14  # by which others are found to be near
    assert select(" ", tally, cleans_only=True) is None
    assert (tally.read, tally.dropped) == (0, {"empty": 1})


def test_what_is_empty_after_cleaning_is_dropped() -> None:
    config = SelectionConfig(drop_boilerplate=True)
    tally = Tally()
    assert Selector(config, None)("We use cookies. Accept all cookies?", tally) is None
    assert tally.dropped == {"empty": 1}
