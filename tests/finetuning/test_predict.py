"""What a model says of words that it never sees, and how much of a text it reads."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, pipeline

import maskwright
from maskwright.errors import InputError, ModelFolderError, TokenizerError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.conll import Sentence, split_words
from maskwright.finetuning.network import build_classifier
from maskwright.finetuning.predict import Predictor, has_columns, list_entities
from maskwright.finetuning.predict import predict as answer_all
from maskwright.finetuning.task import Answer
from maskwright.model.config import ModelConfig, Pooling, resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.classifier_folder import save_classifier
from maskwright.model_folder.folder import save_model
from maskwright.serving.pipelines import (
    Query,
    TextClassificationPipeline,
    TokenClassificationPipeline,
)
from maskwright.serving.schemas import TextClassificationParameters, TokenClassificationParameters
from maskwright.tokenizer.words import WordRule
from tests.command import Cli
from tests.finetuning.helpers import TOKENIZER, make_loaded
from tests.tokenizer.helpers import trained

WORDS = ["the", "\u200b", "cat", "\ufe0f"]


def save_tagger(
    folder: Path,
    labels: tuple[str, ...],
    max_length: int | None = None,
    words: WordRule | None = None,
) -> None:
    model = build_classifier(make_loaded().model, FinetuneConfig(), "token", len(labels), seed=0)
    problem = "single_label_classification"
    save_classifier(folder, model, TOKENIZER, labels, problem, max_length=max_length, words=words)


@pytest.mark.parametrize(
    ("labels", "expected"), [(("B-LOC", "O"), "O"), (("O", "B-LOC"), "O"), (("DET", "NOUN"), "")]
)
def test_words_that_the_tokenizer_drops_have_no_probability(
    labels: tuple[str, ...], expected: str, tmp_path: Path
):
    save_tagger(tmp_path / "model", labels)
    predict = Predictor(tmp_path / "model", "cpu")
    [first, dropped, second, last] = predict.tag([WORDS])[0]
    assert dropped == last == Answer(expected, None, {})
    assert [answer.label for answer in predict.tag([["the", "cat"]])[0]] == [
        first.label,
        second.label,
    ]
    assert sum(first.probabilities.values()) == pytest.approx(1)
    [found] = TokenClassificationPipeline(predict)(
        [Query(" ".join(WORDS), None, TokenClassificationParameters())]
    )
    assert {one["word"] for one in found} <= {"the", "cat"}
    assert len(found) == sum(answer.label != "O" for answer in (first, second))


def write_chinese(path: Path) -> Path:
    """Sentences of a character a line, in which a person lives in a place."""
    places = ["实数", "理上", "总称"]
    sentences = [
        [*((c, f"{'IB'[not n]}-PER") for n, c in enumerate("数学")), ("在", "O")]
        + [(c, f"{'IB'[not n]}-LOC") for n, c in enumerate(places[number % 3])]
        + [("。", "O")]
        for number in range(24)
    ]
    lines = ("".join(f"{word} {tag}\n" for word, tag in one) for one in sentences)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_text_without_blanks_is_tagged_as_in_training(tmp_path: Path):
    tokenizer = trained("wordpiece")
    sizes = ModelConfig(preset="bert", hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    config = resolve_config(sizes, vocab_size=tokenizer.vocab_size, max_seq_length=64)
    save_model(tmp_path / "encoder", MaskedLanguageModel(config), tokenizer)
    settings = {"epochs": 40, "learning_rate": 0.01, "device": "cpu", "precision": "fp32"}
    train = write_chinese(tmp_path / "train.conll")
    folder = maskwright.finetune(
        tmp_path / "encoder",
        task="tokens",
        train=train,
        valid=train,
        out=tmp_path / "run",
        **settings,
    )
    text = "数学在实数。"
    expected = [(0, 2, "PER", "数学"), (3, 5, "LOC", "实数")]
    theirs = pipeline("token-classification", str(folder), aggregation_strategy="simple")
    for found in (theirs(text), serve_entities(folder, text)):
        shown = [(one["start"], one["end"], one["entity_group"]) for one in found]
        assert shown == [one[:3] for one in expected]
    assert [one["word"] for one in serve_entities(folder, text)] == [one[3] for one in expected]
    [answered] = answer_all(folder, [text], device="cpu")
    assert answered.texts == tuple(text)
    assert isinstance(answered.answer, list)
    assert [one.label for one in answered.answer] == ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O"]


def serve_entities(folder: Path, text: str) -> list[Any]:
    parameters = TokenClassificationParameters(aggregation_strategy="simple")
    [found] = TokenClassificationPipeline(Predictor(folder, "cpu"))([Query(text, None, parameters)])
    return [*found]


def test_words_that_must_be_given_are_asked_for_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    save_tagger(tmp_path / "model", ("O", "B"), words=WordRule("blanks", 3))
    predict = Predictor(tmp_path / "model", "cpu")
    assert len(predict.split("กิน ข้าว extraordinary")) == 3
    assert capsys.readouterr().err == ""
    for _ in range(2):
        assert len(predict.split("กินข้าวกิน ok")) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert '"กินข้าวกิน" is longer than every word of training (3 characters)' in line


@pytest.mark.parametrize("said", [{"splitting": "words"}, {"longest": "a"}, "blanks", {"x": 1}])
def test_a_rule_of_words_that_is_none_is_one_line(said: object, tmp_path: Path):
    save_tagger(tmp_path / "model", ("O", "B"))
    change_config(tmp_path / "model", maskwright={"words": said})
    with pytest.raises(ModelFolderError, match=r"maskwright\.words") as caught:
        Predictor(tmp_path / "model", "cpu")
    assert "\n" not in str(caught.value)


def save_texts(
    folder: Path,
    max_length: int | None = None,
    num_texts: int | None = None,
    pooling: Pooling | None = None,
) -> Predictor:
    config = FinetuneConfig(pooling=pooling)
    model = build_classifier(make_loaded().model, config, "text", 2, seed=0)
    names, problem = ("a", "b"), "single_label_classification"
    save_classifier(
        folder, model, TOKENIZER, names, problem, max_length=max_length, num_texts=num_texts
    )
    return Predictor(folder, "cpu")


def test_what_it_was_trained_to_read_is_read(tmp_path: Path):
    short, long = "the cat " * 3 + "sees", "the cat " * 3 + "sees the log"
    predict = save_texts(tmp_path / "short", 10)
    assert AutoTokenizer.from_pretrained(tmp_path / "short").model_max_length == 10
    one, same = predict([short, long])
    assert (one, predict.num_cut, predict.longest) == (same, 1, 10)
    one, other = save_texts(tmp_path / "long", None)([short, long])
    assert one != other
    assert save_texts(tmp_path / "more", 1000).longest == 64
    save_tagger(tmp_path / "tags", ("O", "B"), max_length=10)
    tagger = Predictor(tmp_path / "tags", "cpu")
    first, _ = (tagger.tag([words.split()])[0] for words in (short, long))
    assert tagger.tag([long.split()])[0][: len(first)] == first  # cut between words


def test_texts_that_are_compared_are_encoded_apart(tmp_path: Path):
    predict = save_texts(tmp_path / "model", num_texts=2, pooling="bi")
    assert "maskwright predict" in (tmp_path / "model/README.md").read_text()
    pairs = [("the cat", "the dog sees"), ("the cat sees the x-ray", "the"), ("the", "the")]
    whole = predict(pairs)
    for pair, answer in zip(pairs, whole, strict=True):
        assert answer.probabilities == pytest.approx(predict([pair])[0].probabilities, abs=1e-6)
    assert len({answer.score for answer in whole}) == 3
    assert predict([("the cat", "")])[0].score is not None


def test_nothing_is_answered_with_nothing(tmp_path: Path):
    assert save_texts(tmp_path / "texts", None)([]) == []
    save_tagger(tmp_path / "tags", ("O", "B"))
    assert Predictor(tmp_path / "tags", "cpu").tag([[], []]) == [[], []]


@pytest.mark.parametrize(("said", "longest"), [(1e30, 64), (None, 64), (8, 8), (12.0, 12)])
def test_other_limits_are_understood(said: float | None, longest: int, tmp_path: Path):
    save_texts(tmp_path / "model", None)
    change_limit(tmp_path / "model", said)
    assert Predictor(tmp_path / "model", "cpu").longest == longest


@pytest.mark.parametrize("said", [7, -1, math.nan, "512", True, [8]])
def test_a_limit_that_is_none_is_one_line(said: object, tmp_path: Path):
    save_texts(tmp_path / "model", None)
    change_limit(tmp_path / "model", said)
    with pytest.raises(TokenizerError, match=r"model_max_length = .* must be a number of tokens"):
        Predictor(tmp_path / "model", "cpu")


def change_limit(folder: Path, said: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": said}))


@pytest.mark.parametrize("num_texts", [1, 2])
def test_texts_and_pairs_are_not_taken_for_each_other(num_texts: int, tmp_path: Path):
    predict = save_texts(tmp_path / "model", num_texts=num_texts)
    asked = ["the cat", ("the cat", "sees")]
    assert len(predict([asked[num_texts - 1]])) == 1
    assert num_texts == 2 or predict("the cat") == predict(["the cat"])
    with pytest.raises(InputError, match="sentence1"):
        predict([asked[2 - num_texts]])
    queries = [Query("the cat", pair, TextClassificationParameters()) for pair in (None, "sees")]
    answers = TextClassificationPipeline(predict)(queries)
    assert [isinstance(one, InputError) for one in answers] == [num_texts == 2, num_texts == 1]


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_regression_of_several_numbers_is_one_line(tmp_path: Path):
    save_texts(tmp_path / "texts")
    change_config(tmp_path / "texts", problem_type="regression")
    with pytest.raises(ModelFolderError, match="problem_type = regression"):
        Predictor(tmp_path / "texts", "cpu")
    save_tagger(tmp_path / "tags", ("O", "B"))  # transformers reads no problem_type of taggers
    change_config(tmp_path / "tags", problem_type="regression")
    assert len(Predictor(tmp_path / "tags", "cpu").tag([["the", "cat"]])[0]) == 2


def test_a_question_needs_its_text(tmp_path: Path):
    model = build_classifier(make_loaded().model, FinetuneConfig(), "span", 2, seed=0)
    names, problem = ("start", "end"), "single_label_classification"
    save_classifier(tmp_path / "model", model, TOKENIZER, names, problem)
    predict = Predictor(tmp_path / "model", "cpu")
    assert predict.loaded.num_texts is None
    with pytest.raises(InputError, match="sentence2"):
        predict(["the cat"])
    assert len(predict([("the cat", "the dog sees the cat")])) == 1
    table = tmp_path / "asked.tsv"
    table.write_text("question\tcontext\tanswer\nthe cat\tthe dog sees the cat\tthe dog\n")
    [asked] = answer_all(tmp_path / "model", table=table, device="cpu")
    assert asked.texts == ("the cat", "the dog sees the cat")


def test_logits_that_are_no_numbers(tmp_path: Path):
    texts = save_texts(tmp_path / "texts")
    save_tagger(tmp_path / "tags", ("O", "B"))
    tags = Predictor(tmp_path / "tags", "cpu")
    for predict in (texts, tags):
        output = predict.loaded.model.head.output
        output.bias.data = torch.full_like(output.bias, math.nan)
    with pytest.raises(ModelFolderError, match="no finite logits"):
        texts(["the cat"])
    with pytest.raises(ModelFolderError, match="no finite logits"):
        tags.tag([["the", "cat"]])


def test_positions_are_of_tables_without_a_header(tmp_path: Path):
    bare, named, lines = (tmp_path / f"x.{end}" for end in ("tsv", "csv", "jsonl"))
    bare.write_text("a film that is fine\tgood\n")
    named.write_text("text,label\na film that is fine,good\n")
    lines.write_text('{"text": "a film that is fine", "label": "good"}\n')
    found = [has_columns(path, {"sentence1": 0, "label": 1}) for path in (bare, named, lines)]
    assert found == [True, False, False]
    found = [has_columns(path, {"sentence1": "text"}) for path in (bare, named, lines)]
    assert found == [False, True, True]
    assert not has_columns(named, {})


TEXT = "  The  cat (x-ray) saw\tNew York, the cat."


def answer_words(words: Sequence[str]) -> list[Answer]:
    """Names are places, and a cat is an animal."""
    tags = {"cat": "B-animal", "x-ray": "I-animal", "New": "B-LOC", "York": "I-LOC"}
    labels = ("O", "B-animal", "I-animal", "B-LOC", "I-LOC")
    chosen = [tags.get(word, "O") for word in words]
    found = [{label: 0.6 if label == tag else 0.1 for label in labels} for tag in chosen]
    return [Answer(tag, 0.6, each) for tag, each in zip(chosen, found, strict=True)]


def test_entities_have_their_characters_in_the_text():
    words = Sentence(TEXT, split_words(TEXT))
    found = list_entities(words, answer_words(words))
    expected = [("animal", "cat"), ("animal", "x-ray"), ("LOC", "New York"), ("animal", "cat")]
    assert [(one.label, one.text) for one in found] == expected
    assert all(TEXT[one.start : one.end] == one.text for one in found)
    assert [one.score for one in found] == pytest.approx([0.6] * 4)
    assert found[-1].start > found[0].end


def test_entities_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli):
    save_tagger(tmp_path / "ner", ("O", "B-animal"))
    monkeypatch.setattr(Predictor, "tag", lambda _, words: [*map(answer_words, words)])
    (tmp_path / "lines.txt").write_text(f"{TEXT}\n\nthe\n", encoding="utf-8")
    asked = ["predict", str(tmp_path / "ner"), str(tmp_path / "lines.txt"), "--entities"]
    lines = cli(*asked).split("\n")
    start = TEXT.index("New")
    assert lines[2] == f"LOC\t0.6000\tNew York\t{start}\t{start + 8}"
    assert lines[4:] == ["", "", "", ""]  # of the blank line and the one without entities
    first, blank, other = [json.loads(line) for line in cli(*asked, "--json").splitlines()]
    assert first["text"] == TEXT
    assert [TEXT[one["start"] : one["end"]] for one in first["entities"]] == [
        one["text"] for one in first["entities"]
    ]
    assert (blank, other["entities"]) == ({"text": "", "entities": []}, [])
    words = json.loads(cli(*asked[:-1], "--json").splitlines()[0])["words"]
    assert [TEXT[one["start"] : one["end"]] for one in words] == [one["word"] for one in words]


def test_what_has_no_entities_says_so(tmp_path: Path, cli: Cli):
    save_texts(tmp_path / "texts")
    save_tagger(tmp_path / "pos", ("DET", "NOUN"))
    for name in ("texts", "pos"):
        code, out, err = cli.run("predict", tmp_path / name, "the cat", "--entities")
        assert (code, out) == (2, "")
        assert "--entities has no effect" in err
        assert err.count("\n") == 1


def test_every_word_of_a_long_text_is_tagged(tmp_path: Path):
    save_tagger(tmp_path / "ner", ("O", "B-animal"))
    text = "the cat sees the dog. and the dog sees the cat! " * 40
    [found] = answer_all(tmp_path / "ner", text, device="cpu")
    assert isinstance(found.answer, list)
    assert None not in [answer.score for answer in found.answer]
    assert len(found.answer) == 40 * 13
    assert found.sentence is not None
    assert found.sentence.spans[-1] == (len(text) - 2, len(text) - 1)


def test_a_text_that_is_cut_is_counted_in_one_line(tmp_path: Path, cli: Cli):
    save_texts(tmp_path / "texts", 10)
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat\n" + "the cat sees the dog and " * 3 + "\n")
    expected = "1 of 2 texts (50.0%) cut: only the first 10 tokens are read\n"
    assert cli.run("predict", tmp_path / "texts", lines)[::2] == (0, expected)
