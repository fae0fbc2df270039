"""Held-out samples: the same ones every time, never longer than the model."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from maskwright.inference.fill_mask import FillMask, Prediction
from maskwright.inference.samples import NUM_DRAWN, HeldOutSamples, join_punctuation
from maskwright.logs import describe_samples
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from tests.models import small_config

TEXTS = [
    f"First sentence number {n}. The {animal} eats green grass and drinks clear water daily. End."
    for n, animal in enumerate(["horse", "goat", "sheep", "donkey", "hare"])
]


class Corpus:
    """Five documents as a token store shows them."""

    def __init__(self, tokenizer: Tokenizer, texts: list[str] = TEXTS) -> None:
        encoded = tokenizer.encode_batch(texts)
        self.document_lengths = np.array([len(text.ids) for text in encoded])
        self._ids = np.concatenate([text.ids for text in encoded])
        self._starts = np.concatenate([text.word_starts for text in encoded])

    def tokens(self, start: int, stop: int) -> np.ndarray:
        return self._ids[start:stop]

    def word_starts(self, start: int, stop: int) -> np.ndarray:
        return self._starts[start:stop]


def count(corpus: Corpus) -> np.ndarray:
    return np.bincount(corpus.tokens(0, int(corpus.document_lengths.sum())), minlength=100)


def make_samples(
    tokenizer: Tokenizer, num_shown: int, max_tokens: int, texts: list[str] = TEXTS
) -> HeldOutSamples:
    corpus = Corpus(tokenizer, texts)
    return HeldOutSamples(corpus, tokenizer, count(corpus), num_shown, max_tokens)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerConfig(vocab_size=100, min_frequency=1))


def test_samples_are_the_same_every_time_and_hide_one_word(tokenizer: Tokenizer):
    corpus = Corpus(tokenizer)
    samples = HeldOutSamples(corpus, tokenizer, count(corpus), 3, max_tokens=28).shown
    assert samples == HeldOutSamples(corpus, tokenizer, count(corpus), 3, max_tokens=28).shown
    assert len(samples) == 3
    for sample in samples:
        [masked] = sample.masked
        word = tokenizer.decode([sample.ids[masked]])
        assert word.isalpha()


def test_masked_words_are_drawn_as_often_as_they_occur_and_shown_over_all_frequencies():
    draw = random.Random(0)
    names = [f"{one}{two}" for one in ("ba", "co", "di", "fu", "ge") for two in "lmnprst"]
    weights = [1 / (rank + 1) for rank in range(len(names))]
    texts = [" ".join(["start", *draw.choices(names, weights, k=12), "end."]) for _ in range(400)]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocab_size=200, min_frequency=1))
    corpus = Corpus(tokenizer, texts)
    counts = np.bincount(corpus.tokens(0, int(corpus.document_lengths.sum())), minlength=200)
    samples = HeldOutSamples(corpus, tokenizer, counts, 5, max_tokens=28)
    assert len(samples.drawn) == NUM_DRAWN
    masked = [sample.ids[sample.masked[0]] for sample in samples.drawn]
    ids = [token for name in [*names, "end"] if (token := tokenizer.token_id(name)) is not None]
    assert {*masked} <= {*ids}
    common = sorted(ids, key=lambda token: -counts[token])[:5]
    expected = counts[common].sum() / counts[ids].sum()
    found = sum(token in common for token in masked) / NUM_DRAWN
    assert found == pytest.approx(expected, abs=0.15)
    shown = [int(counts[sample.ids[sample.masked[0]]]) for sample in samples.shown]
    ordered = sorted((int(counts[token]) for token in masked), reverse=True)
    assert shown == [ordered[place] for place in (10, 30, 50, 70, 90)]
    assert len({*shown}) > 3


def test_count_right_counts_what_predict_marks(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    samples = make_samples(tokenizer, 2, 28)
    words = [tokenizer.token(sample.ids[sample.masked[0]]) for sample in samples.drawn]
    model = MaskedLanguageModel(
        replace(small_config(max_seq_length=32), vocab_size=tokenizer.vocab_size)
    )
    for word in {*words}:
        guesser = Guesser(tokenizer, word)
        monkeypatch.setattr(FillMask, "from_parts", lambda *parts, guesser=guesser: guesser)
        lines, found = samples.predict(model, wrap=True), samples.count_right(model, wrap=True)
        assert found.samples_right == words.count(word)
        assert found.samples_masked == len(samples.drawn)
        assert found.samples_shown_right == sum(line[0] == "✓" for line in lines)
        assert found.samples_shown == len(lines) == 2
        caption = describe_samples({"samples": lines, **found._asdict()})
        assert f": {found.samples_right} of {len(words)} words are right" in caption
        assert caption.endswith(f"{found.samples_shown_right} of these 2")


def test_nothing_is_drawn_where_nothing_is_shown(tokenizer: Tokenizer):
    assert make_samples(tokenizer, 0, 28).drawn == []
    assert describe_samples({"samples": []}) == ""


@pytest.mark.parametrize("max_tokens", [6, 10])
def test_samples_fit_a_short_model(tokenizer: Tokenizer, max_tokens: int):
    samples = make_samples(tokenizer, 5, max_tokens).shown
    assert all(len(sample.ids) <= max_tokens for sample in samples)


def test_a_line_names_the_guesses_and_the_word(tokenizer: Tokenizer):
    samples = make_samples(tokenizer, 2, max_tokens=28)
    config = replace(small_config(max_seq_length=32), vocab_size=tokenizer.vocab_size)
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    lines = samples.predict(model, wrap=True)
    assert len(lines) == 2
    for line, sample in zip(lines, samples.shown, strict=True):
        assert line[0] in "✓✗"
        assert "[MASK]" in line
        assert line.count("%") == 3
        assert line.endswith(f"(was: {tokenizer.decode([sample.ids[sample.masked[0]]])})")


def test_guesses_are_whole_words(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    samples = make_samples(tokenizer, 1, max_tokens=28)
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    pieces = [n for n, token in enumerate(tokens) if token.startswith("##")][:5]
    words = [tokenizer.token_id(word) for word in ("The", "horse", ".")]
    assert len(pieces) == 5
    assert None not in words

    def guess(self: FillMask, rows: list[list[int]], count: int) -> list[list[list[Prediction]]]:
        found = [Prediction(tokens[n], n, 0.1) for n in [*pieces, *words] if n is not None]
        return [[found[:count]] for _ in rows]

    monkeypatch.setattr(FillMask, "predict_ids", guess)
    config = replace(small_config(max_seq_length=32), vocab_size=tokenizer.vocab_size)
    [line] = samples.predict(MaskedLanguageModel(config), wrap=True)
    assert "→  The 10% · horse 10% · . 10%  (was" in line


def test_a_document_of_one_sentence_is_a_sample(tokenizer: Tokenizer):
    texts = ["The horse eats green grass and drinks clear water daily."]
    assert len(make_samples(tokenizer, 5, 28, texts).shown) == 1


class Guesser:
    """Stands for `FillMask`: guesses a given token at every place."""

    def __init__(self, tokenizer: Tokenizer, token: str) -> None:
        token_id = tokenizer.token_id(token)
        assert token_id is not None
        self.guess = Prediction(token, token_id, 0.5)
        self.mask_id = tokenizer.mask_id

    def wrap(self, ids: list[int]) -> list[int]:
        return ids

    def predict_ids(self, rows: list[list[int]], top_k: int) -> list[list[list[Prediction]]]:
        return [[[self.guess] for token_id in row if token_id == self.mask_id] for row in rows]


def test_of_characters_many_are_hidden_and_all_are_shown(monkeypatch: pytest.MonkeyPatch):
    config = TokenizerConfig(kind="character", min_frequency=1, vocab_size=64, lowercase=False)
    characters = train_tokenizer(["\n".join(TEXTS)], config)
    corpus = Corpus(characters, ["\n".join(TEXTS)])
    samples = HeldOutSamples(corpus, characters, count(corpus), 3, max_tokens=32)
    assert [len(sample.ids) for sample in samples.shown] == [32] * 3
    guesser = Guesser(characters, "e")
    monkeypatch.setattr(FillMask, "from_parts", lambda *parts: guesser)
    config = replace(small_config(max_seq_length=32), vocab_size=characters.vocab_size)
    lines = samples.predict(MaskedLanguageModel(config), wrap=False)
    shown = "".join(lines)
    assert shown.count("⟨") == 15  # 15 % of 32, three times
    assert "⟨e⟩" in shown
    assert "⟨e≠" in shown
    assert "⟨e≠▁⟩" in shown
    counts = samples.count_right(MaskedLanguageModel(config), wrap=False)
    assert counts[2:] == (shown.count("⟨e⟩"), 15)
    assert counts.samples_masked > 15
    assert "tokens are right" in describe_samples({"samples": lines, **counts._asdict()})
    shown = re.sub("⟨e≠(.)⟩", r"\1", shown.replace("⟨e⟩", "e")).replace("▁", " ")
    assert shown == "↵".join(TEXTS)[:96]


@pytest.mark.parametrize(
    ("decoded", "text"),
    [
        ('the show " Late [MASK] ", on CBS .', 'the show "Late [MASK]", on CBS.'),
        ("a ( bcl - 2 family [MASK] ) of array _ like", "a (bcl-2 family [MASK]) of array_like"),
        ("marx ' s 1 , 000 dogs ' bones ; 3 . 5 %", "marx's 1,000 dogs ' bones; 3.5%"),
        ("[MASK] . The [MASK] ?", "[MASK]. The [MASK]?"),
    ],
)
def test_punctuation_is_read_without_the_blanks_of_wordpiece(decoded: str, text: str):
    assert join_punctuation(decoded) == text
