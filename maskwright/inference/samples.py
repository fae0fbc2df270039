"""Samples of held-out text with predictions, the same ones at every validation.

A sample is a sentence with one masked word of one token, drawn from all words of its text, so that
frequent words are masked as often as they occur. Of a hundred samples a few are shown, from the
most frequent masked word to the rarest; how many of the hundred are right is counted. If tokens are
not words (characters, or a script with short words), a sample is a piece of text with 15 % of the
tokens masked. Every prediction is between ⟨ and ⟩, and a wrong one is followed by ≠ and the
original.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import Corpus
from maskwright.formatting import show_share
from maskwright.inference.fill_mask import FillMask, Prediction
from maskwright.logs import SampleCounts
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.token_text import TokenText, find_sentence_ends
from maskwright.tokenizer.tokenizer import Tokenizer

NUM_DRAWN = 100  # samples, of which a few are shown
_MIN_WORDS = 4  # of three letters or more: a sentence with fewer is no text of words
_MAX_SAMPLE_TOKENS = 28
_MAX_PIECE_TOKENS = 64
_PIECE_RATE = 0.15
_MAX_DOCUMENTS = 2000  # searched for sentences
_NUM_GUESSES = 3
_NUM_CANDIDATES = 30  # predictions, of which the first whole words are shown
# Punctuation without blanks in English; WordPiece decodes a blank around all punctuation.
_NO_BLANK = (
    (re.compile(r"(?<=\w) ([-_/@]) (?=\w)"), r"\1"),
    (re.compile(r"(?<=\w) (['\u2019]) (?=(?:s|t|d|m|re|ve|ll)\b)"), r"\1"),
    (re.compile(r"(?<=\d) ([.,:]) (?=\d)"), r"\1"),
    (re.compile(r"(?<=[(\[{“\u2018$£€#]) "), ""),
    (re.compile(r" (?=[.,;:!?%)\]}”…](?!\w))"), ""),
    (re.compile(r'" ([^"]*) "'), r'"\1"'),
)


@dataclass(frozen=True)
class Sample:
    """A piece of text: its tokens, and the masked positions in ascending order.

    Attributes:
        is_word: True if one word is masked and the predictions are listed after the text.
    """

    ids: list[int]
    masked: tuple[int, ...]
    is_word: bool


class HeldOutSamples:
    """Samples from documents of a corpus; the choice depends only on the text and its tokens.

    Args:
        counts: [V] training counts of the tokens, by which the shown samples are chosen.
        num_shown: the maximum number of samples that are shown; 0: nothing is drawn either.
        max_tokens: the maximum tokens per sample; samples must also fit on a line.

    Attributes:
        drawn: up to `NUM_DRAWN` samples, in random order.
        shown: the samples to show; of words from the most frequent one to the rarest.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        counts: NDArray[np.int64],
        num_shown: int,
        max_tokens: int,
    ) -> None:
        num_drawn = NUM_DRAWN if num_shown else 0
        self.tokenizer = tokenizer
        self._pieces = TokenText(tokenizer)
        self._ends = find_sentence_ends(tokenizer)
        self._ordinary = frozenset(tokenizer.ordinary_ids.tolist())
        self.max_tokens = min(max_tokens, _MAX_SAMPLE_TOKENS)
        lengths = corpus.document_lengths
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(derive_keys(np.arange(len(lengths))), kind="stable")
        tried = order[:_MAX_DOCUMENTS].tolist()
        spans = [(int(starts[document]), int(lengths[document])) for document in tried]
        each = math.ceil(NUM_DRAWN / max(1, len(spans)))  # sentences of a document
        words = _take_turns(self._cut_sentences(corpus, *span, each) for span in spans)
        self.drawn = list(islice(words, num_drawn))
        self.shown = _spread(self.drawn, counts, num_shown)
        if not self.drawn:
            self.max_tokens = min(max_tokens, _MAX_PIECE_TOKENS)
            pieces = (piece for span in spans for piece in self._cut_pieces(corpus, *span))
            self.drawn = list(islice(pieces, num_drawn))
            self.shown = self.drawn[:num_shown]

    def _cut_pieces(self, corpus: Corpus, start: int, length: int) -> Iterator[Sample]:
        """Yield the pieces of a document, each with randomly masked tokens."""
        for first in range(start, start + length, self.max_tokens):
            ids = corpus.tokens(first, min(first + self.max_tokens, start + length)).tolist()
            maskable = [i for i, token_id in enumerate(ids) if token_id in self._ordinary]
            keys = derive_keys(first, np.asarray(maskable, np.int64))
            chosen = np.argsort(keys, kind="stable")[: round(_PIECE_RATE * len(ids))]
            if len(chosen):
                masked = tuple(sorted(maskable[number] for number in chosen.tolist()))
                yield Sample(ids, masked, is_word=False)

    def _cut_sentences(
        self, corpus: Corpus, start: int, length: int, count: int
    ) -> Iterator[Sample]:
        """Yield about `count` whole sentences of a document or more, each with a masked word."""
        stop = start + min(length, 20 * count * self.max_tokens)
        ids: list[int] = corpus.tokens(start, stop).tolist()
        word_starts = corpus.word_starts(start, stop)
        ends = [i + 1 for i, token_id in enumerate(ids) if token_id in self._ends]
        ends += [len(ids)] if len(ids) not in ends else []
        sentences = list(zip([0, *ends], ends, strict=False))
        for begin, end in sentences[1:] or sentences:
            end = min(end, begin + self.max_tokens)
            words = {
                i: word
                for i in range(begin + 1, end - 1)
                if word_starts[i] and word_starts[i + 1] and (word := self._read_word(ids[i]))
            }
            if sum(len(word) >= 3 for word in words.values()) >= _MIN_WORDS:
                key = derive_keys(start + begin)[0]
                choice = [*words][int(key % np.uint64(len(words)))]
                yield Sample(ids[begin:end], (choice - begin,), is_word=True)

    def _read_word(self, token_id: int) -> str:
        """Return the letters of a token; empty if it has other characters."""
        word = self.tokenizer.decode([token_id]).strip()
        return word if word.isalpha() else ""

    def predict(self, model: MaskedLanguageModel, wrap: bool) -> list[str]:
        """Return a line for each shown sample: right or wrong, text, predictions, masked word.

        `wrap` is True if the model was trained with [CLS] and [SEP] around the text.
        """
        lines = (
            self._describe_word(sample, guesses[0])
            if sample.is_word
            else self._describe_piece(sample, [best.token_id for best, *_ in guesses])
            for sample, guesses in self._guess(model, wrap, self.shown)
        )
        return [line.replace("\n", "↵") for line in lines]

    def count_right(self, model: MaskedLanguageModel, wrap: bool) -> SampleCounts:
        """Return how many masked words or tokens of all drawn samples are right, and of those
        that are shown: where the first of the predictions that `predict` lists is the original.
        """
        totals = [0, 0, 0, 0]
        shown = {id(sample) for sample in self.shown}
        for sample, guesses in self._guess(model, wrap, self.drawn):
            pairs = zip(guesses, sample.masked, strict=True)
            right = sum(found[0].token_id == sample.ids[at] for found, at in pairs)
            parts = (right, len(guesses))
            parts += parts if id(sample) in shown else (0, 0)
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        return SampleCounts(*totals)

    def _guess(
        self, model: MaskedLanguageModel, wrap: bool, samples: Sequence[Sample]
    ) -> Iterator[tuple[Sample, list[list[Prediction]]]]:
        """Yield each sample with its predictions; for words, with those that are whole words."""
        fill = FillMask.from_parts(model, self.tokenizer, wrap)
        rows = [fill.wrap(self._mask(sample)) for sample in samples]
        found = fill.predict_ids(rows, _NUM_CANDIDATES) if rows else []
        for sample, guesses in zip(samples, found, strict=True):
            yield sample, [*map(self._pick_words, guesses)] if sample.is_word else guesses

    def _mask(self, sample: Sample) -> list[int]:
        ids = list(sample.ids)
        for position in sample.masked:
            ids[position] = self.tokenizer.mask_id
        return ids

    def _pick_words(self, guesses: list[Prediction]) -> list[Prediction]:
        """Return the most probable predictions that are whole words."""
        words = [guess for guess in guesses if not self._continues_word(guess.token_id)]
        return (words or guesses)[:_NUM_GUESSES]

    def _continues_word(self, token_id: int) -> bool:
        token = self.tokenizer.token(token_id)
        if self.tokenizer.kind == "wordpiece":
            return token.startswith("##")
        text = self._pieces.spell(token)  # empty for bytes of an incomplete character
        return not text or text[0].isalnum()

    def _describe_piece(self, sample: Sample, guesses: list[int]) -> str:
        parts: list[str] = []
        begin = 0
        for position, guess in zip(sample.masked, guesses, strict=True):
            actual = self._pieces.show(sample.ids[position])
            wrong = "" if guess == sample.ids[position] else self._pieces.show(guess) + "≠"
            parts += [self.tokenizer.decode(sample.ids[begin:position]), f"⟨{wrong}{actual}⟩"]
            begin = position + 1
        return "".join([*parts, self.tokenizer.decode(sample.ids[begin:])])

    def _show_word(self, guess: Prediction) -> str:
        shown = self._pieces.show(guess.token_id)
        return shown.removeprefix("▁") or shown

    def _describe_word(self, sample: Sample, guesses: list[Prediction]) -> str:
        [masked] = sample.masked
        actual = sample.ids[masked]
        left = self.tokenizer.decode(sample.ids[:masked])
        right = self.tokenizer.decode(sample.ids[masked + 1 :])
        guessed = " · ".join(
            f"{self._show_word(guess)} {show_share(guess.score)}" for guess in guesses
        )
        sign = "✓" if guesses[0].token_id == actual else "✗"
        word = self.tokenizer.decode([actual]).strip()
        text = f"{left} {self.tokenizer.mask_token} {right}"
        text = join_punctuation(text) if self.tokenizer.kind == "wordpiece" else text
        return f"{sign} {text}  →  {guessed}  (was: {word})"


def _take_turns(groups: Iterable[Iterator[Sample]]) -> Iterator[Sample]:
    """Yield the first sample of each group, then the second of each, and so on."""
    left = list(groups)
    while left:
        again = list[Iterator[Sample]]()
        for group in left:
            for sample in islice(group, 1):
                yield sample
                again.append(group)
        left = again


def _spread(samples: Sequence[Sample], counts: NDArray[np.int64], num: int) -> list[Sample]:
    """Return the samples in the middle of `num` equal parts, by the frequency of their word."""
    ordered = sorted(samples, key=lambda sample: -int(counts[sample.ids[sample.masked[0]]]))
    num = min(num, len(ordered))
    return [ordered[(2 * part + 1) * len(ordered) // (2 * num)] for part in range(num)]


def join_punctuation(text: str) -> str:
    """Return decoded text without the blanks that WordPiece adds around punctuation.

    The rules are heuristics for English, for display only: the original spacing is not known.
    """
    for blank, joined in _NO_BLANK:
        text = blank.sub(joined, text)
    return text
