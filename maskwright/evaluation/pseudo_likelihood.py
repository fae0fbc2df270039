"""What a masked language model is asked to score texts: a row with masks, and a place in it.

An answer is a token at a question's place. Equal questions are asked once, also for different
answers: two sentences that differ in the hidden word ask the same.

Pseudo-log-likelihood: how likely a masked language model finds a text.

The sum over the text's tokens of log p(token | all others). ``original`` hides one token at a time
(Salazar et al., "Masked Language Model Scoring", 2020). Then the rest of a word gives away its
token, and rare words of several tokens score better than common ones of one; ``within_word_l2r``,
the default, therefore hides the later tokens of the same word too (Kauf and Ivanova, "A Better Way
to Do Masked Language Model Scoring", 2023). [CLS] and [SEP] are seen and never scored.

Only hidden places go through the end of the last block and the head, and of their logits only
what a score needs remains: the label's, and the logarithm of the sum. In fp32.

Q questions, A answers, D width, V vocabulary.
"""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from maskwright.errors import InputError
from maskwright.inference.text_model import TextModel, check_finite, split_blocks
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.template import wraps_inputs
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer

Metric = Literal["original", "within_word_l2r"]


@dataclass
class Questions:
    """All different questions about some texts, and the answers whose probabilities are wanted.

    Attributes:
        rows: of each question the ids with masks.
        places: of each question the place asked for.
        asked: of each answer its question.
        labels: of each answer its token.
    """

    mask_id: int
    rows: list[list[int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    _numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add_text(
        self, row: list[int], first: int, word_starts: Sequence[bool], metric: Metric
    ) -> None:
        """One question and answer for each token of a text, in order.

        Args:
            row: the text's ids with what is around them.
            first: where in `row` the text begins.
            word_starts: of each of its tokens.
            metric: whether the later tokens of the same word are hidden too.
        """
        ends = find_ends(word_starts, metric)
        for place, end in enumerate(ends, start=first):
            stop = first + end
            masked = [*row[:place], *[self.mask_id] * (stop - place), *row[stop:]]
            self.asked.append(self._find(masked, place))
            self.labels.append(row[place])

    def _find(self, masked: list[int], place: int) -> int:
        key = (place, *masked)
        number = self._numbers.setdefault(key, len(self.rows))
        if number == len(self.rows):
            self.rows.append(masked)
            self.places.append(place)
        return number


def find_ends(word_starts: Sequence[bool], metric: Metric) -> list[int]:
    """For each token where what is hidden with it ends: behind it, or behind its word."""
    count = len(word_starts)
    if metric == "original":
        return list(range(1, count + 1))
    ends = [count] * count
    for place in range(count - 2, -1, -1):
        ends[place] = place + 1 if word_starts[place + 1] else ends[place + 1]
    return ends


_HEAD_ROWS = 256  # questions that go through the head together: bounds the [Q, V] logits

_Key = tuple[bytes, bytes]


@dataclass(frozen=True)
class PseudoLikelihood:
    """The score of one text.

    Attributes:
        text: as it was given.
        token_ids: its tokens, without special ones.
        scores: the log-probability of each, in nats.
    """

    text: str
    token_ids: list[int]
    scores: list[float]

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text, in nats; 0 of a text without tokens."""
        return math.fsum(self.scores)

    @property
    def num_tokens(self) -> int:
        return len(self.scores)


def compute_pseudo_perplexity(total: float, num_tokens: int) -> float:
    """``exp(-total / tokens)`` of all texts together (Salazar et al. 2020, equation 3).

    Infinite where it is too large for a number.
    """
    try:
        return math.exp(-total / num_tokens)
    except OverflowError:
        return math.inf


class PseudoLikelihoodScorer(TextModel[MaskedLanguageModel]):
    """Scores texts with the model in a folder; the API behind ``maskwright score``.

    ::

        score = PseudoLikelihoodScorer("runs/mine/model")
        [good, bad] = score(["The cats sleep.", "The cats sleeps."])
        good.total > bad.total

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device.
    """

    def __call__(
        self,
        texts: str | Sequence[str],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
    ) -> list[PseudoLikelihood]:
        """The scores of one text or many, in order.

        Args:
            texts: encoded as in training: special tokens written in them are ordinary text.
            metric: what is hidden together with a token.
            batch_tokens: most tokens, padding included, in one pass through the model.

        Raises:
            InputError: a text longer than the model, or no such metric.
        """
        results: list[PseudoLikelihood] = []
        for result in self.attempt(
            [texts] if isinstance(texts, str) else texts, metric, batch_tokens
        ):
            if isinstance(result, InputError):
                raise result
            results.append(result)
        return results

    def attempt(
        self,
        texts: Sequence[str],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
    ) -> list[PseudoLikelihood | InputError]:
        """Like a call, but a text that is too long has its error in the place of a score.

        Raises:
            InputError: there is no such metric.
        """
        encoded = self.tokenizer.encode_batch(texts)
        errors: dict[int, InputError] = {}
        for number, text in enumerate(texts):
            try:
                self.wrap_text(encoded[number].ids.tolist(), text)
            except InputError as error:
                errors[number] = error
        fitting = [one for number, one in enumerate(encoded) if number not in errors]
        scores = iter(self.score_encoded(fitting, metric, batch_tokens))
        return [
            errors[number]
            if number in errors
            else PseudoLikelihood(text, encoded[number].ids.tolist(), next(scores))
            for number, text in enumerate(texts)
        ]

    def score_encoded(
        self,
        texts: Sequence[EncodedText],
        metric: Metric = "within_word_l2r",
        batch_tokens: int | None = None,
    ) -> list[list[float]]:
        """The log-probability of each token of texts that are tokens already, in nats.

        Raises:
            InputError: there is no such metric, or a text is longer than the model.
        """
        if metric not in get_args(Metric):
            raise InputError(f"metric = {metric} must be {' or '.join(get_args(Metric))}.")
        keys = [(text.ids.tobytes(), text.word_starts.tobytes()) for text in texts]
        rows = dict(zip(keys, texts, strict=True))  # equal texts are scored once
        found: dict[_Key, list[float]] = {}
        for block in split_blocks(rows.items(), _measure):
            scores = self._score([text for _, text in block], metric, batch_tokens)
            found.update(zip((key for key, _ in block), scores, strict=True))
        return [found[key] for key in keys]

    def _score(
        self, texts: Sequence[EncodedText], metric: Metric, batch_tokens: int | None
    ) -> list[list[float]]:
        """The score of each token of each text."""
        questions = Questions(self.tokenizer.mask_id)
        first = self.wrap([-1]).index(-1)
        for text in texts:
            ids = text.ids.tolist()
            row = self.wrap(ids)
            if len(row) > self.longest:
                self.wrap_text(ids, self.tokenizer.decode(ids))
            questions.add_text(row, first, text.word_starts.tolist(), metric)
        scores = iter(self._answer(questions, batch_tokens))
        return [[next(scores) for _ in text.ids] for text in texts]

    def _answer(self, questions: Questions, batch_tokens: int | None) -> list[float]:
        """The log-probability of each answer, [A]."""
        order: list[int] = []
        hidden: list[Tensor] = []
        with torch.autocast(self.device.type, enabled=False):
            for batch in self.make_batches(questions.rows, batch_tokens):
                places = torch.tensor([questions.places[number] for number in batch.numbers])
                row_starts = torch.arange(len(places)) * batch.ids.shape[1]
                hidden.append(self.encode(batch, self.model.predictors(row_starts + places)))
                order += batch.numbers
            if not hidden:
                return []
            # In the order of the batches, so that each part of them has its answers together.
            turn = torch.empty(len(order), dtype=torch.int64)
            turn[order] = torch.arange(len(order))
            turns, answers = turn[questions.asked].sort()
            found = self._find_scores(
                torch.cat(hidden), turns, torch.tensor(questions.labels)[answers]
            )
        scores = torch.empty(len(answers))
        scores[answers] = found.cpu()
        return scores.tolist()

    @torch.inference_mode()
    def _find_scores(self, hidden: Tensor, turns: Tensor, labels: Tensor) -> Tensor:
        """Log-probabilities [A] of `labels` at rows `turns` (sorted) of vectors [Q, D]."""
        counts = torch.bincount(turns, minlength=len(hidden))
        turns, labels = turns.to(hidden.device), labels.to(hidden.device)
        scores: list[Tensor] = []
        done = answered = 0
        for rows in hidden.split(_HEAD_ROWS):
            logits = self.model.head(rows).float()
            part = slice(answered, answered + int(counts[done : done + len(rows)].sum()))
            asked = turns[part] - done
            scores.append(logits[asked, labels[part]] - logits.logsumexp(-1)[asked])
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
    """The scores of texts from a model in memory, also one that is being trained.

    Args:
        add_special_tokens: whether it was trained on [CLS] … [SEP]; None = as the tokenizer says,
            which is right for any that came from a model folder.
        batch_tokens: most tokens, padding included, in one pass through the model.

    Raises:
        InputError: a text longer than the model, or no such metric.
    """
    with scoring(model, tokenizer, add_special_tokens) as scorer:
        return scorer(texts, metric, batch_tokens)


@contextmanager
def scoring(
    model: MaskedLanguageModel, tokenizer: Tokenizer, add_special_tokens: bool | None = None
) -> Generator[PseudoLikelihoodScorer]:
    """A scorer around a model in memory, which afterwards is in the mode that it was in."""
    if add_special_tokens is None:
        add_special_tokens = wraps_inputs(tokenizer) is not False
    was_training = model.training
    try:
        yield PseudoLikelihoodScorer.from_parts(model, tokenizer, add_special_tokens)
    finally:
        model.train(was_training)


def _measure(item: tuple[_Key, EncodedText]) -> int:
    """How many tokens the questions about a text hold, nearly."""
    return len(item[1].ids) ** 2
