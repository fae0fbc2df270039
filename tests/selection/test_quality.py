"""Each rule of quality drops what it is for, and nothing that reads like text."""

from collections import Counter
from dataclasses import fields, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import ConfigError
from maskwright.selection.config import QualityLimits, SelectionConfig
from maskwright.selection.quality import drop_boilerplate, find_fault
from maskwright.selection.words import hash_words, split_words
from tests.limits import limited_cpu_seconds

PROSE = """The river rises in the hills north of the town and flows for ninety miles to the sea.
Its banks were settled long before the first bridge was built by an order of travelling monks.
Today it carries grain, timber and, in a dry summer, hardly any water at all through six locks.
A poet who lived nearby complained that its fog had ruined two manuscripts and one marriage."""
OFF = QualityLimits(**{field.name: 0 for field in fields(QualityLimits)})


def judge(text: str, limits: QualityLimits) -> str | None:
    words = split_words(text)
    return find_fault(text, words, hash_words(words), limits)


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
        ("too many lines end with an ellipsis", "max_ellipses", "read more...\nsee all…\nend."),
        ("repeated lines", "max_repeated_lines", "the same\nthe same\nthe same\nanother"),
        ("repeated lines", "max_repeated_line_characters", f"{PROSE}\nno\n{PROSE}\nno"),
        ("few lines end like a sentence", "min_ended_lines", "Home\nAbout us\nContact\nImprint"),
        ("short lines", "max_short_lines", "Yes.\nNo.\nPerhaps.\n" + PROSE.split("\n")[0]),
        ("one phrase repeated", "max_top_ngram", f"{PROSE} " + "buy now " * 60),
        ("repeated phrases", "max_repeated_ngrams", f"{PROSE} {PROSE}"),
    ],
)
def test_each_rule_alone(reason: str, limit: str, text: str) -> None:
    value = {"min_words": 5, "max_words": 50}.get(limit, getattr(QualityLimits(), limit))
    limits = replace(OFF, **{limit: value})
    assert judge(text, limits) == reason
    assert judge(text, OFF) is None
    assert judge(PROSE, replace(limits, max_words=0)) is None


# The same sentences about a river, in Korean, Thai, Burmese, Tibetan, Chinese, Amharic.
IN_OTHER_SCRIPTS = {
    "ko": "그 강은 도시 북쪽의 산에서 시작하여 바다까지 백 리를 흐른다. 첫 다리가 놓이기 훨씬 "
    "전부터 강가에 사람이 살았다. 오늘은 배로 곡식과 나무를 나르며, 여름에는 물이 거의 없다. "
    "근처에 살던 한 시인은 안개가 두 원고와 한 결혼을 망쳤다고 했다.",
    "th": "แม่น้ำสายนี้ไหลจากภูเขาทางเหนือของเมืองไปจนถึงทะเล\n"
    "ผู้คนตั้งถิ่นฐานอยู่ริมฝั่งมานานก่อนจะมีสะพานแห่งแรก\n"
    "ปัจจุบันใช้ขนส่งข้าวและไม้ แต่ในฤดูร้อนแทบไม่มีน้ำเลย",
    "my": "ဤမြစ်သည် မြို့မြောက်ဘက်ရှိ တောင်များမှ စတင်၍ ပင်လယ်အထိ စီးဆင်းသည်။ ပထမတံတား မတည်ဆောက်မီ "
    "ရှေးကာလကပင် လူများ နေထိုင်ခဲ့ကြသည်။",
    "bo": "བོད་ཡིག་ནི་སྐད་ཡིག་ཅིག་ཡིན། གཙང་པོ་འདི་རི་ནས་མཚོ་བར་དུ་འབབ་ཀྱི་ཡོད། ཆུ་འདི་ཧ་ཅང་རིང་པོ་ཡིན།",
    "zh": "这条河发源于城市以北的山区，流经许多村庄，最后注入大海。早在第一座桥建成之前，"
    "两岸就有人居住。如今人们用它运输粮食和木材，夏天却几乎没有水。",
    "am": "ወንዙ ከከተማው በስተሰሜን ካሉት ተራሮች ተነስቶ ወደ ባሕር ይፈሳል። ከመጀመሪያው ድልድይ በፊት ሰዎች በዳርቻው ይኖሩ ነበር።",
}


@pytest.mark.parametrize("language", IN_OTHER_SCRIPTS)
def test_prose_of_other_scripts_is_kept(language: str) -> None:
    limits = replace(QualityLimits(), min_words=10)
    assert judge(IN_OTHER_SCRIPTS[language], limits) is None
    assert judge(f"{IN_OTHER_SCRIPTS[language]}\n" * 4, limits) == "repeated lines"


def test_a_name_that_comes_again_is_no_repetition_where_words_are_letters() -> None:
    """As n-grams of five letters, not of ten, it is a quarter of the text."""
    draw = Random(0).choices
    letters = [chr(0x4E00 + n) for n in range(500)]
    text = "。".join("".join(draw(letters, k=20)) + "中华人民共和国" for _ in range(40))
    assert judge(text, replace(OFF, max_repeated_ngrams=0.15)) is None
    assert judge(text + text, replace(OFF, max_repeated_ngrams=0.15)) == "repeated phrases"


def find_repetition(words: list[str], limits: QualityLimits) -> str | None:
    """The rules of repetition, as one reads them in the papers."""
    total = sum(map(len, words))
    for n in range(2, min(5, len(words) + 1)):
        ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        ((commonest, count),) = Counter(ngrams).most_common(1)
        limit = limits.max_top_ngram - 0.02 * (n - 2)
        if count > 1 and count * sum(map(len, commonest)) > limit * total:
            return "one phrase repeated"
    for n in range(5, min(11, len(words) + 1)):
        seen, repeated = set[tuple[str, ...]](), set[int]()
        for i in range(len(words) - n + 1):
            ngram = tuple(words[i : i + n])
            if ngram in seen:
                repeated.update(range(i, i + n))
            seen.add(ngram)
        limit = limits.max_repeated_ngrams - 0.01 * (n - 5)
        if sum(len(words[i]) for i in repeated) > limit * total:
            return "repeated phrases"
    return None


@given(
    st.lists(st.sampled_from(["aa", "bb", "cc", "dd"]), min_size=1, max_size=40),
    st.floats(0.2, 1),
    st.floats(0.2, 1),
)
def test_repetition_is_what_its_slow_twin_finds(words: list[str], top: float, any_: float) -> None:
    # Of words of one length it does not matter which of the commonest n-grams is taken.
    limits = replace(OFF, max_top_ngram=top, max_repeated_ngrams=any_)
    assert judge(" ".join(words), limits) == find_repetition(words, limits)


def test_notices_go_and_paragraphs_about_them_stay() -> None:
    text = f"{PROSE}\nThis site uses cookies.\nPlease enable JavaScript to go on."
    assert drop_boilerplate(text) == PROSE
    footer = "Terms of use | Privacy policy | Contact\nJavaScript must be enabled.\nWe use cookies."
    assert drop_boilerplate(footer) == ""
    for prose in (
        "JavaScript is a programming language that browsers understand.",
        "The treaty's terms and conditions were harsh.",
        "Her essay on the privacy policy won a prize.",
        "He served four terms as governor of Alabama.",
        "He did not agree to the terms of the treaty, nor in our terms.",
        "She left without JavaScript experience.",
    ):
        assert drop_boilerplate(prose) == prose
    paragraph = "JavaScript is a language that was written in ten days. " * 8
    assert drop_boilerplate(paragraph.strip()) == paragraph.strip()


@pytest.mark.parametrize("line", ["a line of a list\n", "一二三。\n", "privacy policy "])
def test_boilerplate_is_found_in_linear_time(line: str) -> None:
    text = line * 60_000 + "."
    with limited_cpu_seconds(30):  # it took hours
        assert drop_boilerplate(text) == text


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="min_words = -1 must not be negative"):
        QualityLimits(min_words=-1)
    with pytest.raises(ConfigError, match=r"max_digits = 20 must be at most 1\. Try 0\.2\."):
        QualityLimits(max_digits=20)


def test_settings_of_a_step_that_is_off_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"limits\.min_words = 5 has no effect without select\.q"):
        SelectionConfig(limits=QualityLimits(min_words=5))
    with pytest.raises(ConfigError, match=r"has no effect without select\.language"):
        SelectionConfig(language_confidence=0.9)
    SelectionConfig(quality=True, limits=QualityLimits(min_words=5), language_confidence=0.65)
