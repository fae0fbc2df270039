"""Pseudo-log-likelihood: the score of a text by a masked language model.

The score is the sum over the text's tokens of log p(token | all others). ``original`` masks one
token at a time (Salazar et al., "Masked Language Model Scoring", 2020). Then the rest of a word
reveals the masked token, and rare words of several tokens score better than common words of one.
The default ``within_word_l2r`` therefore also masks the later tokens of the same word (Kauf and
Ivanova, "A Better Way to Do Masked Language Model Scoring", 2023). [CLS] and [SEP] are in the input
but not scored.

``original`` may mask several tokens in a pass, at equal distances. A text of n tokens then takes
n / k passes instead of n; the scores are a little lower, as each token sees n - k others.

A question is a masked row and a position in it; an answer is a token at a question's position.
Equal questions are computed once: two sentences that differ in the masked word share one. Only
masked positions pass through the end of the last block and the head, whose products are fp32; those
of the blocks are in `PseudoLikelihoodScorer.precision`.

Q questions, A answers, D width, V vocabulary.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from maskwright.errors import InputError
from maskwright.inference.text_model import TextModel, check_finite, raise_errors, split_blocks
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.template import wraps_inputs
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer
from maskwright.train.config import FixedPrecision
from maskwright.train.device import autocast

Metric = Literal["original", "within_word_l2r"]
_HEAD_ROWS = 256  # questions per pass through the head, which bounds the [Q, V] logits
_Key = tuple[bytes, bytes, int]


@dataclass
class Questions:
    """The distinct questions about some texts, and the answers to score.

    Attributes:
        rows: the masked ids, each of one question or of several.
        positions: the positions of the tokens to predict in each row, one a question.
        num_questions: the number of questions of all rows.
        questions: the index of the question of each answer.
        labels: the token of each answer.
    """

    mask_id: int
    rows: list[list[int]] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)
    num_questions: int = 0
    questions: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add_text(
        self,
        row: list[int],
        first: int,
        word_starts: Sequence[bool],
        metric: Metric,
        num_given: int = 0,
    ) -> None:
        """Add one question and answer for each token of a text, in order.

        Args:
            row: the text's ids with special tokens around them.
            first: the index in `row` of the first token of the text.
            word_starts: for each of its tokens, True if a word starts there.
            metric: the choice of tokens that are masked together.
            num_given: the number of context tokens at its beginning, which are not scored.
        """
        ends = find_ends(word_starts, metric)[num_given:]
        for position, end in enumerate(ends, start=first + num_given):
            stop = first + end
            masked = [*row[:position], *[self.mask_id] * (stop - position), *row[stop:]]
            number = self._numbers.setdefault((position, *masked), self.num_questions)
            if number == self.num_questions:
                self._add_row(masked, [position])
            self.questions.append(number)
            self.labels.append(row[position])

    def add_spread(self, row: list[int], first: int, end: int, num_masks: int) -> None:
        """Add the questions about the tokens from `first` to `end` with up to `num_masks` a row.

        The masks of a row are as far apart as possible, all at the same distance.
        """
        num_rows = -(-(end - first) // num_masks)
        begin = self.num_questions
        numbers: dict[int, int] = {}
        for offset in range(num_rows):
            positions = list(range(first + offset, end, num_rows))
            masked = row.copy()
            masked[first + offset : end : num_rows] = [self.mask_id] * len(positions)
            numbers |= {place: begin + len(numbers) + n for n, place in enumerate(positions)}
            self._add_row(masked, positions)
        self.questions += [numbers[place] for place in range(first, end)]
        self.labels += row[first:end]

    def _add_row(self, masked: list[int], positions: list[int]) -> None:
        self.rows.append(masked)
        self.positions.append(positions)
        self.num_questions += len(positions)


def find_ends(word_starts: Sequence[bool], metric: Metric) -> list[int]:
    """Return for each token the end (exclusive) of the masked span: the token's or its word's."""
    count = len(word_starts)
    if metric == "original":
        return list(range(1, count + 1))
    ends = [count] * count
    for i in range(count - 2, -1, -1):
        ends[i] = i + 1 if word_starts[i + 1] else ends[i + 1]
    return ends


@dataclass(frozen=True)
class PseudoLikelihood:
    """The score of one text.

    Attributes:
        text: the text as given.
        token_ids: its tokens without special tokens.
        scores: the log-probability of each token in nats.
    """

    text: str
    token_ids: list[int]
    scores: list[float]

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood in nats; 0 for a text without tokens."""
        return math.fsum(self.scores)

    @property
    def mean(self) -> float:
        """The mean log-probability of a token, which compares texts of several lengths.

        NaN for a text without tokens.
        """
        return self.total / self.num_tokens if self.scores else math.nan

    @property
    def num_tokens(self) -> int:
        return len(self.scores)


class PseudoLikelihoodScorer(TextModel[MaskedLanguageModel]):
    """A model that scores texts, loaded from a folder; the API behind ``maskwright score``::

        score = PseudoLikelihoodScorer("runs/mine/model")
        [good, bad] = score(["The cats sleep.", "The cats sleeps."])
        good.total > bad.total

    Attributes:
        precision: the precision of the matrix products in the blocks.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device.
    """

    precision: FixedPrecision = "fp32"

    def __call__(
        self,
        texts: str | Sequence[str],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
        num_masks: int = 1,
    ) -> list[PseudoLikelihood]:
        """Return the scores of one text or many, in order.

        Args:
            texts: one text or several; special tokens in them are read as ordinary text.
            metric: the choice of tokens that are masked together.
            batch_tokens: the maximum tokens per batch, padding included.
            num_masks: the tokens that are masked in a pass; more than one with ``original`` only.

        Raises:
            InputError: a text exceeds the model's maximum length, there is no such metric, or it
                masks words.
        """
        given = [texts] if isinstance(texts, str) else texts
        return raise_errors(self.attempt(given, metric, batch_tokens, num_masks))

    def attempt(
        self,
        texts: Sequence[str],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
        num_masks: int = 1,
    ) -> list[PseudoLikelihood | InputError]:
        """Return the scores of texts, with an InputError instead for a text that is too long.

        Raise InputError if there is no such metric.
        """
        encoded = self.tokenizer.encode_batch(texts)
        errors: dict[int, InputError] = {}
        for number, text in enumerate(texts):
            try:
                self.wrap_text(encoded[number].ids.tolist(), text)
            except InputError as error:
                errors[number] = error
        fitting = [one for number, one in enumerate(encoded) if number not in errors]
        scores = iter(self.score_encoded(fitting, metric, batch_tokens, num_masks=num_masks))
        return [
            errors[number]
            if number in errors
            else PseudoLikelihood(text, encoded[number].ids.tolist(), next(scores))
            for number, text in enumerate(texts)
        ]

    def stream(
        self, texts: Iterable[str], metric: Metric = "within_word_l2r", num_masks: int = 1
    ) -> Iterator[PseudoLikelihood | InputError]:
        """Yield for each text of an iterator, which may be long, its result or its InputError."""
        for block in split_blocks(texts):
            yield from self.attempt(block, metric, num_masks=num_masks)

    @staticmethod
    def compute_perplexity(total: float, num_tokens: int) -> float:
        """Return ``exp(-total / tokens)`` of all texts together (Salazar et al. 2020, equation 3).

        The result is infinity if it overflows a float or if there are no tokens.
        """
        try:
            return math.exp(-total / num_tokens) if num_tokens else math.inf
        except OverflowError:
            return math.inf

    def score_encoded(
        self,
        texts: Sequence[EncodedText],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
        num_given: Sequence[int] | None = None,
        num_masks: int = 1,
    ) -> list[list[float]]:
        """Return the log-probability of each token of tokenized texts, in nats.

        Args:
            num_given: the number of context tokens at the beginning of each text, not scored.
            num_masks: as in a call.

        Raises:
            InputError: there is no such metric, it masks words, or a text exceeds the model's
                maximum length.
        """
        if num_masks < 1 or (num_masks > 1 and metric != "original"):
            rule = "must be at least 1, and 1 with a metric that masks words"
            raise InputError(f"masks = {num_masks} {rule}. Set metric = original.")
        if metric not in get_args(Metric):
            raise InputError(f"metric = {metric} must be {' or '.join(get_args(Metric))}.")
        keys = [
            (text.ids.tobytes(), text.word_starts.tobytes(), given)
            for text, given in zip(texts, num_given or [0] * len(texts), strict=True)
        ]
        rows = dict(zip(keys, texts, strict=True))  # scores equal texts only once
        found: dict[_Key, list[float]] = {}
        for block in split_blocks(rows.items(), _measure):
            scores = self._score(block, metric, batch_tokens, num_masks)
            found.update(zip((key for key, _ in block), scores, strict=True))
        return [found[key] for key in keys]

    def _score(
        self,
        texts: Sequence[tuple[_Key, EncodedText]],
        metric: Metric,
        batch_tokens: int | None,
        num_masks: int,
    ) -> list[list[float]]:
        questions = Questions(self.tokenizer.mask_id)
        first = self.wrap([-1]).index(-1)
        for (*_, num_given), text in texts:
            ids = text.ids.tolist()
            row = self.wrap(ids)
            if len(row) > self.longest:
                self.wrap_text(ids, self.tokenizer.decode(ids))
            if num_masks > 1:
                questions.add_spread(row, first + num_given, first + len(ids), num_masks)
                continue
            questions.add_text(row, first, text.word_starts.tolist(), metric, num_given)
        scores = iter(self._answer(questions, batch_tokens))
        return [[next(scores) for _ in text.ids[num_given:]] for (*_, num_given), text in texts]

    def _answer(self, questions: Questions, batch_tokens: int | None) -> list[float]:
        order: list[int] = []
        hidden: list[Tensor] = []
        begins = [0, *accumulate(map(len, questions.positions))]
        with torch.autocast(self.device.type, enabled=False):
            for batch in self.make_batches(questions.rows, batch_tokens):
                length = batch.ids.shape[1]
                places = torch.tensor(
                    [
                        row * length + position
                        for row, number in enumerate(batch.numbers)
                        for position in questions.positions[number]
                    ]
                )
                with autocast(self.precision, self.device):
                    vectors = self.encode(batch, self.model.predictors(places))
                # Without autocast they have the dtype of the head, which FSDP may have chosen.
                hidden.append(vectors if self.precision == "fp32" else vectors.float())
                for number in batch.numbers:
                    order += range(begins[number], begins[number + 1])
            if not hidden:
                return []
            # Answers are sorted by question in the order of the batches, so that a slice of the
            # hidden states belongs to a slice of the answers.
            ranks = torch.empty(len(order), dtype=torch.int64)
            ranks[order] = torch.arange(len(order))
            asked, answers = ranks[questions.questions].sort()
            labels = torch.tensor(questions.labels)[answers]
            found = self._find_scores(torch.cat(hidden), asked, labels)
        scores = torch.empty(len(answers))
        scores[answers] = found.cpu()
        return scores.tolist()

    @torch.inference_mode()
    def _find_scores(self, hidden: Tensor, asked: Tensor, labels: Tensor) -> Tensor:
        """Return log-probabilities [A] of `labels` at rows `asked` (sorted) of vectors [Q, D]."""
        counts = torch.bincount(asked, minlength=len(hidden))
        asked, labels = asked.to(hidden.device), labels.to(hidden.device)
        scores: list[Tensor] = []
        done = answered = 0
        for rows in hidden.split(_HEAD_ROWS):
            logits = self.model.head(rows).float()
            part = slice(answered, answered + int(counts[done : done + len(rows)].sum()))
            own = asked[part] - done
            scores.append(logits[own, labels[part]] - logits.logsumexp(-1)[own])
            done, answered = done + len(rows), part.stop
        found = torch.cat(scores)
        check_finite(found)
        return found


def score_pseudo_likelihood(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    metric: Metric = "within_word_l2r",
    *,
    add_special_tokens: bool | None = None,
    batch_tokens: int | None = None,
) -> list[PseudoLikelihood]:
    """Return the scores of texts from a model in memory, for example during training::

        model, tokenizer = load_model("runs/mine")
        [score] = score_pseudo_likelihood(model, tokenizer, ["The cats sleep."])
        print(score.total)  # nats

    Args:
        add_special_tokens: True if the model was trained on [CLS] … [SEP]; None: as the tokenizer
            does, which is correct for a tokenizer from a model folder.
        batch_tokens: the maximum tokens per batch, padding included.

    Raises:
        InputError: a text exceeds the model's maximum length, or there is no such metric.
    """
    with scoring(model, tokenizer, add_special_tokens) as scorer:
        return scorer(texts, metric, batch_tokens)


@contextmanager
def scoring(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    add_special_tokens: bool | None = None,
    precision: FixedPrecision = "fp32",
) -> Generator[PseudoLikelihoodScorer]:
    """Yield a scorer of a model in memory, and restore the model's training mode afterwards."""
    if add_special_tokens is None:
        add_special_tokens = wraps_inputs(tokenizer) is not False
    was_training = model.training
    try:
        scorer = PseudoLikelihoodScorer.from_parts(model, tokenizer, add_special_tokens)
        scorer.precision = precision
        yield scorer
    finally:
        model.train(was_training)


def _measure(item: tuple[_Key, EncodedText]) -> int:
    """Return the approximate number of tokens in the questions about a text."""
    return len(item[1].ids) ** 2
