"""Samples of held-out text with predictions, the same ones at every validation.

A sample is a sentence with one masked word of one token and at least three letters, so that the
predictions are readable words. If tokens are not words (characters, or a script with short words),
a sample is a piece of text with 15 % of the tokens masked. Every prediction is between ⟨ and ⟩, and
a wrong one is followed by ≠ and the original.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import Corpus
from maskwright.formatting import show_share
from maskwright.inference.fill_mask import FillMask, Prediction
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.token_text import TokenText, find_sentence_ends
from maskwright.tokenizer.tokenizer import Tokenizer

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
    """Samples from documents of a corpus; the choice depends only on the number of documents.

    Args:
        count: the maximum number of samples.
        max_tokens: the maximum tokens per sample; samples must also fit on a line.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, count: int, max_tokens: int) -> None:
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
        words = (self._cut_sentence(corpus, *span) for span in spans)
        self.samples = list(islice((sample for sample in words if sample is not None), count))
        if not self.samples:
            self.max_tokens = min(max_tokens, _MAX_PIECE_TOKENS)
            pieces = (piece for span in spans for piece in self._cut_pieces(corpus, *span))
            self.samples = list(islice(pieces, count))

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

    def _cut_sentence(self, corpus: Corpus, start: int, length: int) -> Sample | None:
        """Return the first whole sentence of a document with a word to mask, or None."""
        stop = start + min(length, 20 * self.max_tokens)
        ids: list[int] = corpus.tokens(start, stop).tolist()
        word_starts = corpus.word_starts(start, stop)
        ends = [i + 1 for i, token_id in enumerate(ids) if token_id in self._ends]
        ends += [len(ids)] if len(ids) not in ends else []
        sentences = list(zip([0, *ends], ends, strict=False))
        for begin, end in sentences[1:] or sentences:
            end = min(end, begin + self.max_tokens)
            maskable = [
                i
                for i in range(begin + 1, end - 1)
                if word_starts[i] and word_starts[i + 1] and self._is_readable(ids[i])
            ]
            if len(maskable) >= 4:
                choice = maskable[int(derive_keys(start)[0] % np.uint64(len(maskable)))]
                return Sample(ids[begin:end], (choice - begin,), is_word=True)
        return None

    def _is_readable(self, token_id: int) -> bool:
        word = self.tokenizer.decode([token_id]).strip()
        return len(word) >= 3 and word.isalpha()

    def predict(self, model: MaskedLanguageModel, wrap: bool) -> list[str]:
        """Return a line for each sample: correct or not, the text, predictions, the masked word.

        `wrap` is True if the model was trained with [CLS] and [SEP] around the text.
        """
        fill = FillMask.from_parts(model, self.tokenizer, wrap)
        rows = [fill.wrap(self._mask(sample)) for sample in self.samples]
        predictions = fill.predict_ids(rows, _NUM_CANDIDATES)
        lines = (
            self._describe_word(sample, self._pick_words(guesses[0]))
            if sample.is_word
            else self._describe_piece(sample, [best.token_id for best, *_ in guesses])
            for sample, guesses in zip(self.samples, predictions, strict=True)
        )
        return [line.replace("\n", "↵") for line in lines]

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


def join_punctuation(text: str) -> str:
    """Return decoded text without the blanks that WordPiece adds around punctuation.

    The rules are heuristics for English, for display only: the original spacing is not known.
    """
    for blank, joined in _NO_BLANK:
        text = blank.sub(joined, text)
    return text
