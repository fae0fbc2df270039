"""Tables of words: read by their names, or refused by what they lack."""

import csv
import io
import json
from pathlib import Path

import pytest

from maskwright.errors import CorpusError
from maskwright.finetuning.config import TaskFiles
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.token_task import Tokens
from tests.finetuning.test_conll_layout import PLAIN, SENTENCES

ROWS = [(n, word, tag) for n, each in enumerate(SENTENCES, start=1) for word, tag in each]
LISTS = [{"tokens": [w for w, _ in one], "ner_tags": [t for _, t in one]} for one in SENTENCES]


def make(header: str, is_first_only: bool = False, mark: str = ",") -> str:
    """Return the sentences as the module csv writes them, under the names of a header."""
    file, before = io.StringIO(), 0
    writer = csv.writer(file, delimiter=mark)
    writer.writerow(names := header.split(mark))
    for number, (sentence, word, tag) in enumerate(ROWS):
        shown = "" if is_first_only and sentence == before else f"Sentence: {sentence}"
        known = {"Sentence #": shown, "sentence_id": sentence, "sent_id": sentence}
        known |= {"Word": word, "words": word, "token": word, "word": word, "POS": "NN"}
        known |= {"Tag": tag, "labels": tag, "ner": tag, "tag": tag, "": number}
        writer.writerow([known[name] for name in names])
        before = sentence
    return file.getvalue()


TABLES = {
    "simple.csv": make("sentence_id,words,labels"),
    "ner_dataset.csv": make("Sentence #,Word,POS,Tag"),
    "filled once.csv": make("Sentence #,Word,POS,Tag", is_first_only=True),
    "of a data frame.csv": make(",sentence_id,words,labels"),
    "semicolons.csv": make("sentence_id;word;tag", mark=";"),
    "tabs.tsv": make("sent_id\ttoken\tner", mark="\t"),
    "commas.tsv": make("sentence_id,words,labels"),
    "another ending.txt": make("sentence_id,words,labels"),
    "the ending of CoNLL.conll": make("Sentence #,Word,POS,Tag"),
    "lists.jsonl": "".join(json.dumps(one) + "\n" for one in LISTS),
    "lists.json": "".join(json.dumps(one) + "\n" for one in LISTS),
    "lists.conll": "".join(json.dumps(one) + "\n" for one in LISTS),
    "words.jsonl": "".join(
        json.dumps({"sentence_id": n, "word": word, "tag": tag}) + "\n" for n, word, tag in ROWS
    ),
}


def read(path: Path, **columns: str) -> tuple[list[list[tuple[str, str]]], list[str]]:
    task = Tokens()
    files = TaskFiles(task="tokens", train=path, columns=task.find_columns(path, columns))
    rows = [row for row in task.read(path, files, None) if isinstance(row, TaggedSentence)]
    return [[*zip(row.words, row.tags, strict=True)] for row in rows], task.notes


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_words_is_recognized_said_and_read(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(TABLES[name], encoding="utf-8")
    found, notes = read(path)
    assert found == [*SENTENCES]
    assert notes == [f"{name}: a table of words, in 3 sentences"]


def test_quoted_words_are_those_of_the_module_csv(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text(
        'sentence_id,words,labels\n1,"""",O\n1,",",O\n1,A,B-X\n2,B,O\n', encoding="utf-8"
    )
    with path.open(encoding="utf-8") as file:
        expected = [row["words"] for row in csv.DictReader(file)]
    assert [word for one in read(path)[0] for word, _ in one] == expected


@pytest.mark.parametrize("names", [["O", "B-PER", "B-LOC"], None])
def test_numbers_have_the_names_that_datasets_writes(names: list[str] | None, tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    known = ["O", "B-PER", "B-LOC"]
    numbered = [{**one, "ner_tags": [known.index(t) for t in one["ner_tags"]]} for one in LISTS]
    kind = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    features = {"tokens": [datasets.Value("string")], "ner_tags": [kind]}
    table = datasets.Dataset.from_list(numbered, features=datasets.Features(features))
    path = tmp_path / "train.parquet"
    table.to_parquet(str(path))
    if names:
        assert read(path)[0] == [*SENTENCES]
    else:
        with pytest.raises(CorpusError, match="tag = 1 is a number without a name"):
            read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "Satz,Wort,Art\n1,Alice,B-PER\n1,ging,O\n2,Bob,B-PER\n",
            "it has Satz, Wort, Art",
        ),
        ("a.tsv", "Satz\tWort\tArt\n1\tAlice\tB-PER\n1\tging\tO\n", "Is it a header"),
        ("a.csv", "word,tag\nAlice,B-PER\nleft,O\n", "one sentence of 2 words.*sentence=…"),
        ("a.csv", "tokens,tags\n\"['A', 'b']\",\"['O', 'O']\"\n", "lists as texts"),
        ("a.jsonl", '{"tokens": ["A", "b"], "tags": ["O"]}\n', "has 2 words, but 1 tag"),
        ("a.jsonl", '{"tokens": ["A", ""], "tags": ["O", "O"]}\n', "jsonl:1: word is missing"),
        ("a.jsonl", '{"tokens": ["A"], "kinds": ["O"]}\n', "no column tag: it has tokens, kinds"),
        ("a.jsonl", '{"word": "A", "tag": "O"}\n', "to which sentence"),
        ("a.json", '[{"tokens": ["A"], "tags": ["O"]}]\n', "JSON array"),
        ("a.csv", "sentence_id,word,tag\n1,A,O\n1,b,\n", "a.csv:3: tag is missing"),
        ("a.csv", "sentence_id,word,tag\n1,A,O\n1,b\n", "a.csv:3 has 2 columns"),
    ],
)
def test_what_a_table_lacks_is_named(name: str, content: str, message: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        read(path)


def test_columns_are_given_by_name(tmp_path: Path):
    path = tmp_path / "a.csv"
    content = make("sentence_id,word,tag").replace("sentence_id,word,tag", "Satz,Wort,Art")
    path.write_text(content, encoding="utf-8")
    assert read(path, sentence="Satz", word="Wort", tag="Art")[0] == [*SENTENCES]


def test_files_of_both_kinds_are_read_beside_each_other(tmp_path: Path):
    conll, table = tmp_path / "a.conll", tmp_path / "a.csv"
    conll.write_text(PLAIN, encoding="utf-8")
    table.write_text(TABLES["simple.csv"], encoding="utf-8")
    for train, valid in ((conll, table), (table, conll)):
        task = Tokens()
        files = TaskFiles(
            task="tokens", train=train, valid=valid, columns=task.find_columns(train, {})
        )
        rows = [task.read(path, files, None) for path in (train, valid)]
        assert [one.texts for one in rows[0]] == [one.texts for one in rows[1]]
