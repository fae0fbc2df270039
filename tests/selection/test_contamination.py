"""What an evaluation asks is not trained on; ordinary phrases are."""

import json
from collections import Counter
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import CorpusError
from maskwright.selection.contamination import WORDS, EvaluationTexts, read_evaluation
from maskwright.selection.words import hash_words, split_words

LONG = "the larvae of this small black fly feed on snails that live in cold mountain rivers"
SHORT = "who has a lot of questions about snails"  # eight words
PHRASE = "in the north of the town"


def holds(texts: list[str], document: str) -> bool:
    words = split_words(document)
    found = EvaluationTexts(texts).find_in(hash_words(words))
    if found is not None:  # it names words that stand in the evaluation, in their order
        run = " ".join(words[found])
        assert any(run in " ".join(split_words(text)) for text in texts)
    return found is not None


def test_thirteen_words_in_a_row() -> None:
    words = LONG.split()
    assert holds([LONG], f"It is known that {' '.join(words[1:14])}.")
    assert not holds([LONG], f"It is known that {' '.join(words[1:13])}.")
    assert holds([LONG], LONG.upper().replace(" ", ", "))  # case and punctuation do not hide it


def test_a_short_text_counts_whole_and_a_phrase_not_at_all() -> None:
    assert holds([SHORT], f"Someone {SHORT}, they say.")
    assert not holds([SHORT], "Someone has a lot of questions about snails, they say.")
    assert len(EvaluationTexts([PHRASE])) == 0
    assert not holds([PHRASE], PHRASE)
    assert not holds([LONG], "")


@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abc"), max_size=40))
def test_as_a_search_in_words_says(asked: list[str], document: list[str]) -> None:
    n = min(len(asked), WORDS)
    runs = {tuple(asked[i : i + n]) for i in range(len(asked) - n + 1)} if n >= 8 else set()
    found = any(tuple(document[i : i + n]) in runs for i in range(len(document) - n + 1))
    assert holds([" ".join(asked)], " ".join(document)) == found


def read(path: Path) -> list[str]:
    return list(read_evaluation([str(path)], Counter()))


def test_files_of_evaluations(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"good": LONG, "more": [SHORT, 3], "id": 7}) + "\nnot JSON\n"
    )
    (tmp_path / "task.tsv").write_text(f"label\ttext\n1\t{LONG}\n")
    (tmp_path / "lines.txt").write_text(f"{SHORT}\n")
    assert (read(tmp_path / "pairs.jsonl")) == [LONG, SHORT, "not JSON"]
    (tmp_path / "table.csv").write_text(f'label,text\n1,{SHORT}\n0,"{PHRASE}, ""so"""\n')
    found = read(tmp_path / "table.csv")
    assert found == ["label", "text", "1", SHORT, "0", f'{PHRASE}, "so"']
    assert LONG in (read(tmp_path / "task.tsv"))
    assert {LONG, SHORT} <= set(read(tmp_path))
    with pytest.raises(CorpusError, match=r"missing\.txt"):
        (read(tmp_path / "missing.txt"))


def test_a_quoted_field_may_hold_line_ends(tmp_path: Path) -> None:
    lines = LONG.replace(" of ", "\n\nof\n")
    (tmp_path / "a.csv").write_text(f'id,text\n1,"{lines}"\n2,"{SHORT}\n3,{PHRASE}\n')
    ignored: Counter[str] = Counter()
    found = list(read_evaluation([str(tmp_path)], ignored))
    assert found[:4] == ["id", "text", "1", lines]
    assert f"3,{PHRASE}" in found  # its row cannot be parsed
    assert holds(found, LONG)
    assert ignored == {"bad table row": 1}


def test_json_counts_in_a_folder_and_what_is_passed_over_is_counted(tmp_path: Path) -> None:
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"question": SHORT}]}, indent=1))
    (tmp_path / "lines.json").write_text("\n".join(json.dumps({"a": x}) for x in (LONG, PHRASE)))
    (tmp_path / "settings.xml").write_text("<a/>")
    (tmp_path / "model.bin").write_text("1")
    ignored: Counter[str] = Counter()
    assert list(read_evaluation([str(tmp_path)], ignored)) == [LONG, PHRASE, SHORT]
    assert ignored == {"ignored file .xml": 1, "ignored file .bin": 1}


def test_texts_are_compared_as_documents_are_cleaned() -> None:
    said = "\u00fcber die Schwelle des alten Hauses trat ein sehr junger Mann herein"
    asked = normalize("NFD", said).replace("Schwelle", "Schwel\u00adle\ud83d")
    assert asked != said
    words = hash_words(split_words(said))
    assert EvaluationTexts([asked.replace("\ud83d", "")]).find_in(words) is not None
    assert EvaluationTexts([asked]).find_in(words) is None  # half of an emoji is a letter


def test_letters_of_scripts_without_blanks_are_no_words() -> None:
    name = "中华人民共和国全国人民代表大会"
    question = f"在今年春天召开的{name}上通过的第一部法律叫什么名字"
    assert not holds([question, "北京大学附属中学"], f"他住在北京大学附属中学旁边，在{name}工作。")
    assert holds([question], f"问：{question}？")
