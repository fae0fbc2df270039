"""Sentences of held-out text with one word hidden: the same ones at every validation.

A number says that a model learns; these say what. Only whole words of one token and at least
three letters are hidden, so that the guesses can be read as words; scores come from
`maskwright.evaluation`, which hides everything.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.data.draws import derive_keys
from maskwright.inference.fill_mask import FillMask, Prediction
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.tokenizer import Tokenizer

_MAX_SAMPLE_TOKENS = 28
_NUM_GUESSES = 3
_SENTENCE_ENDS = (".", "!", "?")


class HeldOutCorpus(Protocol):
    """The part of a token store that is needed here."""

    @property
    def document_lengths(self) -> NDArray[np.int64]: ...

    def tokens(self, start: int, stop: int) -> NDArray[np.unsignedinteger]: ...

    def word_starts(self, start: int, stop: int) -> NDArray[np.bool_]: ...


@dataclass(frozen=True)
class Sample:
    """A piece of text, its tokens, and the place of the hidden one."""

    ids: list[int]
    hidden: int


class HeldOutSamples:
    """Samples from documents of a corpus, in an order that depends on nothing but their number.

    Args:
        count: at most so many; fewer if the corpus does not have them.
        max_tokens: of a sample, if that is less than is easily read.
    """

    def __init__(
        self, corpus: HeldOutCorpus, tokenizer: Tokenizer, count: int, max_tokens: int
    ) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = min(max_tokens, _MAX_SAMPLE_TOKENS)
        self.samples: list[Sample] = []
        lengths = corpus.document_lengths
        starts = np.cumsum(lengths) - lengths
        candidates = np.argsort(derive_keys(np.arange(len(lengths))), kind="stable")
        for document in candidates.tolist():
            start, stop = int(starts[document]), int(starts[document] + lengths[document])
            stop = min(stop, start + 20 * self.max_tokens)
            ids = corpus.tokens(start, stop).tolist()
            sample = self._cut(ids, corpus.word_starts(start, stop), document)
            if sample is not None:
                self.samples.append(sample)
            if len(self.samples) == count:
                break

    def _cut(self, ids: list[int], word_starts: NDArray[np.bool_], document: int) -> Sample | None:
        """The first whole sentence of a document, and a word in it that can be hidden."""
        tokens = [self.tokenizer.token(token_id) for token_id in ids]
        ends = [i + 1 for i, token in enumerate(tokens) if token in _SENTENCE_ENDS]
        sentences = zip([0, *ends], [*ends, len(ids)], strict=True)
        for begin, end in list(sentences)[1:] or [(0, len(ids))]:
            end = min(end, begin + self.max_tokens)
            can_hide = [
                i
                for i in range(begin + 1, end - 1)
                if word_starts[i] and word_starts[i + 1] and self._is_readable(ids[i])
            ]
            if len(can_hide) >= 4:
                choice = can_hide[int(derive_keys(document)[0] % np.uint64(len(can_hide)))]
                return Sample(ids[begin:end], choice - begin)
        return None

    def _is_readable(self, token_id: int) -> bool:
        word = self.tokenizer.decode([token_id]).strip()
        return len(word) >= 3 and word.isalpha()

    def predict(self, model: MaskedLanguageModel, wrap: bool) -> list[str]:
        """A line for each sample: right or wrong, the text, the guesses, the hidden word.

        Args:
            wrap: whether the model was trained with [CLS] and [SEP] around the text.
        """
        fill = FillMask.from_parts(model, self.tokenizer, wrap)
        rows = [fill.wrap(self._hide(sample)) for sample in self.samples]
        predictions = fill.predict_ids(rows, _NUM_GUESSES)
        return [
            self._describe(sample, guesses)
            for sample, [guesses] in zip(self.samples, predictions, strict=True)
        ]

    def _hide(self, sample: Sample) -> list[int]:
        ids = list(sample.ids)
        ids[sample.hidden] = self.tokenizer.mask_id
        return ids

    def _describe(self, sample: Sample, guesses: list[Prediction]) -> str:
        actual = sample.ids[sample.hidden]
        left = self.tokenizer.decode(sample.ids[: sample.hidden])
        right = self.tokenizer.decode(sample.ids[sample.hidden + 1 :])
        guessed = ", ".join(f"{guess.token.strip()} {guess.score:.0%}" for guess in guesses)
        sign = "✓" if guesses[0].token_id == actual else "✗"
        word = self.tokenizer.decode([actual]).strip()
        mask = self.tokenizer.mask_token
        return f"{sign} {left} {mask} {right}  →  {guessed}  (was: {word})"
