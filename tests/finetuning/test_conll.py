"""CoNLL files, words of plain text, and entities."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import CorpusError
from maskwright.finetuning.conll import (
    Entity,
    TaggedSentence,
    find_entities,
    find_word_rule,
    marks_entities,
    read_conll,
    read_words,
    split_words,
)
from maskwright.tokenizer.words import WordRule, WordSplitting


def write(folder: Path, content: str) -> Path:
    path = folder / "a.conll"
    path.write_text(content, encoding="utf-8")
    return path


def test_sentences_of_words_and_tags(tmp_path: Path):
    content = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
    content += "UN\tNNP\tI-NP\tI-ORG\n# SYM O O"
    first, second = read_conll(write(tmp_path, content))
    assert (first.words, first.tags) == (("EU", "rejects"), ("I-ORG", "O"))
    assert first.place.endswith("a.conll:3")
    assert (second.words, second.tags) == (("UN", "#"), ("I-ORG", "O"))


def test_comments_of_conll_u_are_skipped_and_odd_blanks_are_parts_of_words(tmp_path: Path):
    path = tmp_path / "a.conll"
    path.write_text("# sent_id = 1\n10\u00a0000 B-NUM\n# O\n\u3000\tO\n", encoding="utf-8")
    assert [one.words for one in read_conll(path)] == [("10\u00a0000", "#", "\u3000")]


def test_words_need_no_tags(tmp_path: Path):
    path = write(tmp_path, "EU NNP I-ORG\nrejects\n\nNew York\tI-LOC\nis\tO\n")
    assert list(read_words(path)) == [["EU", "rejects"], ["New York", "is"]]
    with pytest.raises(CorpusError, match=r"a\.conll:2 has 1 column, but needs 2"):
        list(read_words(path, word=1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("EU I-ORG\nrejects\n", r"a\.conll:2 has 1 column, but 1 of 2 lines have 2"),
        (
            "U N I O\nParis NNP B-NP\n",
            r"a\.conll:2 has 3 columns, but 1 of 2 lines have 4\. Correct",
        ),
        ("U N O\n\nin P B-X O\n", r"a\.conll:3 has 4 columns, but 1 of 2 lines have 3\. Correct"),
        ("U O\n#from the news\nin O\n", r"a\.conll:2 has 3 columns, .* comment\?"),
        ("\n\n-DOCSTART-\n", "holds no sentence"),
    ],
)
def test_what_is_wrong_is_named(content: str, message: str, tmp_path: Path):
    with pytest.raises(CorpusError, match=message):
        list(read_conll(write(tmp_path, content)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("She lives in Paris, France.", "She|lives|in|Paris|,|France|."),
        ('"(Paris)," he said...', '"|(|Paris|)|,|"|he|said|...'),
        ("A well-known don't costs $3.5!", "A|well-known|don't|costs|$|3.5|!"),
        ("George W. Bush (U.S.), e.g.,", "George|W.|Bush|(|U.S.|)|,|e.g.|,"),
        ("Snails live in Ireland . It 's so", "Snails|live|in|Ireland|.|It|'s|so"),
        ("हिन्दी में। 東京。 a\u200b \ufe0f", "हिन्दी|में|।|東京|。|a\u200b|\ufe0f"),
        (" \t", ""),
    ],
)
def test_punctuation_stands_by_itself(text: str, expected: str):
    assert "|".join(word.text for word in split_words(text)) == expected


@pytest.mark.parametrize(
    ("splitting", "text", "expected"),
    [
        ("blanks", "李明(2008)在北京！！ok", "李明(2008)在北京！！ok"),
        (
            "unspaced_characters",
            "李明(2008)在iPhone,北京！！",
            "李|明|(|2008|)|在|iPhone|,|北|京|！！",
        ),
        ("unspaced_characters", "ガ\u3099タ ก่ินx don't.", "ガ\u3099|タ|ก่ิ|น|x|don't|."),
        ("unspaced_characters", "서울은 3.5", "서울은|3.5"),
        ("characters", "서울은 3.5€", "서|울|은|3|.|5|€"),
        ("characters", "李a\u0301!!", "李|a\u0301|!|!"),
        ("blanks", "กิน\u200bข้าว foo\u200bbar", "กิน|ข้าว|foo\u200bbar"),
    ],
)
def test_scripts_without_blanks_are_split_as_in_training(
    splitting: WordSplitting, text: str, expected: str
):
    words = split_words(text, splitting)
    assert "|".join(word.text for word in words) == expected
    assert [text[word.start : word.end] for word in words] == [word.text for word in words]


@pytest.mark.parametrize(
    ("sentences", "rule"),
    [
        ([[*"李明在北京", "。"], ["iPhone", "很", "好"]], WordRule()),
        ([[*"在2008年"]], WordRule("characters")),
        ([[*"서울은"], [*"cat"]], WordRule("characters")),
        ([["東京", "に", "行く"]], WordRule("blanks", 2)),
        ([["กิน", "ข้าว"]], WordRule("blanks", 3)),
        ([[*"李明在北京" * 5, "一一"]], WordRule()),  # one slip
        ([["EU", "rejects", "a"]], WordRule()),
        ([["...", "!"]], None),
        ([], None),
    ],
)
def test_a_rule_is_found_from_words(sentences: list[list[str]], rule: WordRule | None):
    assert find_word_rule(sentences) == rule


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([*"李明在", "iPhone", "很", "。", "EU", "a"], "李明在iPhone很。 EU a"),
        (["東京", "に", "行く"], "東京 に 行く"),
        (["EU", "rejects", "."], "EU rejects ."),
    ],
)
def test_a_sentence_as_text_has_blanks_where_they_belong(words: list[str], text: str):
    assert TaggedSentence("", tuple(words), ()).texts == [text]


SPLITTINGS = ("blanks", "unspaced_characters", "characters")


@given(st.text(st.sampled_from("a1 .,'()-$\u00a0é…李ก่"), max_size=20), st.sampled_from(SPLITTINGS))
def test_words_are_the_text_without_its_blanks(text: str, splitting: WordSplitting):
    words = split_words(text, splitting)
    assert [text[word.start : word.end] for word in words] == [word.text for word in words]
    assert "".join(word.text for word in words) == "".join(text.split())
    assert all(a.end <= b.start for a, b in pairwise(words))
    again = split_words(" ".join(word.text for word in words), splitting)
    assert [word.text for word in again] == [word.text for word in words]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O O", []),
        ("", []),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-PER I-PER B-PER I-PER", [("PER", 0, 2), ("PER", 2, 4)]),
        ("B-PER I-LOC I-LOC O", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("S-PER S-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER I-PER E-PER I-PER", [("PER", 0, 3), ("PER", 3, 4)]),
        ("O I-A-B", [("A-B", 1, 2)]),
        ("O PER O LOC LOC", [("PER", 1, 2), ("LOC", 3, 5)]),
        ("X-1 O", [("X-1", 0, 1)]),
        (
            "U-PER U-PER B-LOC L-LOC I-LOC",
            [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 4), ("LOC", 4, 5)],
        ),
        ("B-LOC M-LOC E-LOC", [("LOC", 0, 3)]),
        ("B I O B B", [("_", 0, 2), ("_", 3, 4), ("_", 4, 5)]),
    ],
)
def test_entities_of_every_scheme(tags: str, entities: list[tuple[str, int, int]]):
    assert find_entities(tags.split()) == [Entity(*entity) for entity in entities]


def test_parts_of_speech_mark_no_entities():
    assert not marks_entities(["NOUN", "VERB", "X-Y"])
    assert marks_entities(["NOUN", "O"])
    assert marks_entities(["B-PER"])


CONLLU = """# global.columns = ID FORM
# free words
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2-3\tal\t_\t_\t_\t_\t_\t_\t_\t_
2\ta\ta\tADP\t_\t_\t4\tcase\t_\t_
3\tel\tel\tDET\t_\t_\t4\tdet\t_\t_
4\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_
4.1\tva\tir\tVERB\t_\t_\t_\t_\t_\t_
"""


@pytest.mark.parametrize("content", [CONLLU, CONLLU.replace("\t", " ")])
def test_ranges_and_empty_nodes_of_conll_u_are_no_words(content: str, tmp_path: Path):
    path = write(tmp_path, content)
    [sentence] = read_conll(path)
    assert sentence.words == ("Vamos", "a", "el", "mar")
    assert sentence.tags == ("VERB", "ADP", "DET", "NOUN")
    assert list(read_words(path)) == [[*sentence.words]]
    assert [one.tags for one in read_conll(path, word=2, tag=7)] == [("root", "case", "det", "obl")]


def test_the_text_of_conll_u_is_that_of_its_ranges(tmp_path: Path):
    lines = CONLLU.replace("4.1\tva", "5\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_\n4.1\tva")
    lines = lines.replace("obl\t_\t_", "obl\t_\tGloss=sea|SpaceAfter=No")
    path = write(tmp_path, f"{lines}\n{lines}")
    [sentence, _] = read_conll(path)
    assert sentence.texts == ["Vamos al mar."]
    first, second = read_words(path)
    assert first.text == second.text == "Vamos al mar."
    shown = [first.text[start:end] for start, end in first.spans]
    assert shown == ["Vamos", "al", "al", "mar", "."]
    lemmas, _ = read_words(path, word=2)
    assert lemmas.text == "ir a el mar."
    words, _ = read_words(write(tmp_path, "Al O\nmar O\n\nno O\n"))
    assert (words.text, words.spans) == ("Al mar", [(0, 2), (3, 6)])


def test_a_word_that_is_only_an_invisible_character_keeps_its_row(tmp_path: Path):
    words = ("Alice", "\u200b", "joined", "Acme", "today")
    tags = ("O", "O", "O", "B-ORG", "O")
    lines = "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True))
    [sentence] = read_conll(write(tmp_path, lines))
    assert (sentence.words, sentence.tags) == (words, tags)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER 0", "B-PER I-PER O"),
        ("PER-B PER-I O LOC-S", "B-PER I-PER O S-LOC"),
        ("b-per i-per o", "B-per I-per O"),
        ("B_PER I_PER _", "B-PER I-PER O"),
        ("B-caf\u00e9 I-cafe\u0301 O", "B-caf\u00e9 I-caf\u00e9 O"),
        ("b i o", "B I O"),
        ("PER LOC 0", "PER LOC O"),
        ("0 1 2", "0 1 2"),  # numbers of tags
        ("NOUN - _ V-FIN", "NOUN - _ V-FIN"),  # parts of speech
    ],
)
def test_tags_in_other_spellings_are_rewritten(tags: str, expected: str, tmp_path: Path):
    path = write(tmp_path, "".join(f"w\t{tag}\n" for tag in tags.split()))
    notes: list[str] = []
    [sentence] = read_conll(path, notes=notes)
    assert " ".join(sentence.tags) == expected
    pairs = zip(tags.split(), sentence.tags, strict=True)
    assert all(f"{tag} is read as {name}" in notes[0] for tag, name in pairs if tag[0] != name[0])


def test_a_tag_without_a_prefix_beside_tags_with_one_is_refused(tmp_path: Path):
    path = write(tmp_path, "a B-PER\nb O\n\nc PER\n")
    with pytest.raises(CorpusError, match="conll:4: tag = PER has no prefix, but B-PER has one"):
        read_conll(path)
