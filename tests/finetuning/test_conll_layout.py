"""CoNLL files of many layouts: most lines decide, and one odd line is named."""

from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import TaggedSentence, read_words
from maskwright.finetuning.token_task import Tokens

SENTENCES = (
    [("Alice", "B-PER"), ("left", "O"), ("Paris", "B-LOC")],
    [("Bob", "B-PER"), ("stays", "O")],
    [("Eve", "B-PER"), ("saw", "O"), ("Rome", "B-LOC"), ("today", "O")],
)


def make(line: str, before: str = "", end: str = "\n") -> str:
    """Return the sentences as lines of a format of number, word and tag."""
    return "".join(
        before
        + "".join(
            line.format(n=n, word=word, tag=tag, inner="B-LOC" if word == "Paris" else "O") + end
            for n, (word, tag) in enumerate(each, start=1)
        )
        + end
        for each in SENTENCES
    )


PLAIN, TABBED = make("{word} {tag}"), make("{word}\t{tag}")
LAYOUTS = {
    "plain": PLAIN,
    "index": make("{n} {word} {tag}"),
    "index and tabs": make("{n}\t{word}\tNN\t{tag}"),
    "GermEval": make("{n}\t{word}\t{tag}\t{inner}", "#\thttp://a.de/b [2009-10-17]\n"),
    "GermEval, nothing nested": make("{n}\t{word}\t{tag}\tO", "# http://a.de/b [2009-10-17]\n"),
    "blanks and tabs in each line": make("{word} NNP\t{tag}"),
    "a tab in one line": PLAIN.replace("Bob ", "Bob\t"),
    "a blank in one line": TABBED.replace("Bob\t", "Bob "),
    "mark of byte order": f"\ufeff{PLAIN}",
    "line ends of Windows": make("{word} {tag}", end="\r\n"),
    "a comment first": f"# http://a.de\n{PLAIN}",
    "a comment of the same width": make("{word} NN {tag}").replace("Bob", "# my note\nBob"),
    "a comment inside": PLAIN.replace("left O", "left O\n# a note of the editor"),
    "header": f"Word\tTag\n{TABBED}",
    "header in small letters": f"token label\n{PLAIN}",
    "header before a blank line": f"WORD\tTAG\n\n{TABBED}",
    "separators at line ends": make("{word}\t{tag}\t"),
    "blanks at line ends": make("  {word} {tag}  "),
    "blank lines": PLAIN.replace("\n\n", "\n\n \n\t\n"),
    "documents": PLAIN.replace("Bob", "-DOCSTART- -X- O O\n\nBob"),
    "commas": make("{word},{tag}"),
    "commas and a header": f"word,tag\n{make('{word},{tag}')}",
    "semicolons": make("{word};NN;{tag}"),
    "CoNLL-U": make("{n}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_", "# text = a\n# free words\n"),
}


def read(path: Path, **columns: int) -> tuple[list[TaggedSentence], list[str]]:
    task = Tokens()
    files = TaskFiles(task="tokens", train=path, columns=task.find_columns(path, columns))
    rows = [row for row in task.read(path, files, None) if isinstance(row, TaggedSentence)]
    return rows, [*task.notes, str(files.columns)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_find_layout_reads_the_same_sentences(layout: str, tmp_path: Path):
    path = tmp_path / "train.conll"
    path.write_bytes(LAYOUTS[layout].encode())
    rows, _ = read(path)
    assert [[*zip(row.words, row.tags, strict=True)] for row in rows] == [*SENTENCES]
    if "comma" not in layout and "semicolon" not in layout:
        assert [[*one] for one in read_words(path)] == [[w for w, _ in one] for one in SENTENCES]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("index", "column 0 counts the words of each sentence: the words are column 1"),
        ("GermEval", "3 comments are skipped, the first on line 1"),
        ("GermEval", "column 3 has further tags"),
        ("GermEval", "'word': 1, 'tag': 2"),
        ("plain", "'word': 0, 'tag': -1"),
        ("header", "line 1 names the columns"),
        ("CoNLL-U", "'word': 1, 'tag': 3"),
    ],
)
def test_describe_names_what_the_file_decided(layout: str, said: str, tmp_path: Path):
    path = tmp_path / "train.conll"
    path.write_bytes(LAYOUTS[layout].encode())
    assert said in " ".join(read(path)[1])


@pytest.mark.parametrize("layout", ["plain", "index and tabs", "GermEval", "commas"])
@pytest.mark.parametrize("odd", [0, 1, 3, -1])
@pytest.mark.parametrize("change", ["longer", "shorter"])
def test_one_wrong_line_is_named_wherever_it_is(layout: str, odd: int, change: str, tmp_path: Path):
    lines = LAYOUTS[layout].splitlines()
    filled = [n for n, line in enumerate(lines) if line and not line.startswith("#")]
    number, mark = filled[odd], next(m for m in "\t ," if m in lines[filled[odd]])
    cells = lines[number].split(mark)
    lines[number] = mark.join([*cells, "O"] if change == "longer" else cells[:-1])
    path = tmp_path / "train.conll"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=rf"conll:{number + 1} has .* 8 of 9 lines have"):
        read(path)


def test_a_word_may_be_a_number_sign(tmp_path: Path):
    path = tmp_path / "train.conll"
    path.write_text(PLAIN.replace("stays", "# O\n#rome B-LOC\nstays"), encoding="utf-8")
    rows, said = read(path)
    assert rows[1].words == ("Bob", "#", "#rome", "stays")
    assert "comment" not in " ".join(said)


def test_numbers_that_count_nothing_are_words(tmp_path: Path):
    path = tmp_path / "train.conll"
    path.write_text("1 CD B-N\n2 CD B-N\n3 CD B-N\n\n7 CD B-N\nx NN O\n", encoding="utf-8")
    assert read(path)[0][0].words == ("1", "2", "3")


@pytest.mark.parametrize(
    ("layout", "columns", "message"),
    [
        ("index", {"word": 0}, "column 0 counts the words of each sentence.*--columns word=1"),
        ("plain", {"word": 1}, "word = 1 and tag = -1 are one"),
        ("plain", {"word": -1, "tag": 1}, "word = -1 and tag = 1 are one"),
    ],
)
def test_columns_that_hold_no_words_are_refused(
    layout: str, columns: dict[str, int], message: str, tmp_path: Path
):
    path = tmp_path / "train.conll"
    path.write_bytes(LAYOUTS[layout].encode())
    with pytest.raises(CorpusError, match=message):
        read(path, **columns)
