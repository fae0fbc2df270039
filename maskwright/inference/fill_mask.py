"""Fill-mask: the tokens that a trained model predicts for [MASK].

Only the masked positions pass through the end of the last block and the head.
M masks, D width, V vocabulary.
"""

import dataclasses
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maskwright.errors import InputError
from maskwright.inference.text_model import (
    TextModel,
    check_finite,
    raise_errors,
    show_text,
    split_blocks,
)
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.token_text import TokenText, show_tokens

Span = tuple[int, int]
# The mask tokens of BERT and ModernBERT, of RoBERTa, and of EuroBERT.
_MASKS = re.compile(r"\[mask\]|<\|?mask\|?>", re.IGNORECASE)
_HEAD_ROWS = 256  # masks per pass through the head, which bounds the [M, V] logits


@dataclass(frozen=True)
class WordSpan:
    """A word: its tokens ``first … end`` and its characters ``start … stop`` (ends exclusive)."""

    first: int
    end: int
    start: int
    stop: int


@dataclass(frozen=True)
class MaskedWord:
    """A masked word, and the model's prediction.

    Attributes:
        text: the whole text.
        start, stop: the character span of the word.
        guess: the predicted text.
        spelled_masks: the masked word: one mask token for each of its tokens.
    """

    text: str
    start: int
    stop: int
    guess: str
    spelled_masks: str

    @property
    def word(self) -> str:
        """The word that was masked."""
        return self.text[self.start : self.stop]

    def describe(self) -> list[str]:
        """Return four lines: both words, the text, the text with the mask, the model's text."""
        lines = [
            f"masked: {self.word} predicted: {self.guess.strip()}",
            f"ACTUAL: {self.text}",
            f"MASKED: {self._replace(self.spelled_masks)}",
            f"MODEL:  {self._replace(self.guess.strip())}",
        ]
        return [line.replace("\n", "↵") for line in lines]

    def _replace(self, word: str) -> str:
        return self.text[: self.start] + word + self.text[self.stop :]


def find_words(text: str, offsets: Sequence[Span], word_starts: Sequence[bool]) -> list[WordSpan]:
    """Return the words of a text that contain a letter or a digit."""
    firsts = [i for i, starts in enumerate(word_starts) if starts or i == 0]
    words: list[WordSpan] = []
    for first, end in zip(firsts, [*firsts, len(offsets)][1:], strict=True):
        start, stop = offsets[first][0], offsets[end - 1][1]
        word = text[start:stop]
        start += len(word) - len(word.lstrip())
        if any(character.isalnum() for character in word):
            words.append(WordSpan(first, end, start, start + len(word.strip())))
    return words


@dataclass(frozen=True)
class Prediction:
    """A token for a mask, and its probability over the whole vocabulary."""

    token: str
    token_id: int
    score: float


@dataclass(frozen=True)
class FillResult:
    """The predictions for each mask of a text, the most probable first.

    Attributes:
        unknown_share: the share of the text's characters that the model sees as [UNK].
    """

    text: str
    masks: list[list[Prediction]]
    unknown_share: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return ``{"text", "masks": [[{"token", …}, …], …], "unknown_share"}``."""
        return dataclasses.asdict(self)


class FillMask(TextModel[MaskedLanguageModel]):
    """A model that fills masks, loaded from a folder; the API behind ``maskwright fill``::

        fill = FillMask("runs/mine")
        [result] = fill("Paris is the [MASK] of France.")
        result.masks[0][0].token

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device.
    """

    def __call__(
        self,
        texts: str | Sequence[str],
        top_k: int = 5,
        targets: Sequence[str] | None = None,
        batch_tokens: int | None = None,
    ) -> list[FillResult]:
        """Return the most probable words for every mask of every text.

        Predictions are tokens that a text can have: no special tokens, fillers, or bytes outside of
        UTF-8.

        Args:
            texts: one text or many, each with one or more masks.
            top_k: the number of predictions per mask, limited by the size of the vocabulary.
            targets: the only words to consider, each as the token that the place of the mask
                needs; scores remain probabilities over the whole vocabulary.
            batch_tokens: the maximum tokens per batch, padding included.

        Returns:
            One result for each text, in order.

        Raises:
            InputError: a text has no mask or exceeds the model's maximum length, `targets` is empty
                or a target is not a single token, or `top_k` is below 1.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        return raise_errors(self.attempt(texts, top_k, targets, batch_tokens))

    def attempt(
        self,
        texts: Sequence[str],
        top_k: int = 5,
        targets: Sequence[str] | None = None,
        batch_tokens: int | None = None,
    ) -> list[FillResult | InputError]:
        """Return the results of texts, with an InputError for each text that has none.

        Raise InputError for wrong targets, or a `top_k` below 1.
        """
        rows = self._encode_texts(texts, top_k, targets)
        good = [row for row in rows if not isinstance(row, InputError)]
        among = [row.among for row in good] if targets else None
        found = iter(self.predict_ids([row.ids for row in good], top_k, among, batch_tokens))
        return [
            row if isinstance(row, InputError) else FillResult(text, next(found), row.unknown_share)
            for text, row in zip(texts, rows, strict=True)
        ]

    def stream(
        self, texts: Iterable[str], top_k: int = 5, targets: Sequence[str] | None = None
    ) -> Iterator[FillResult | InputError]:
        """Yield for each text of an iterator, which may be long, its result or its InputError."""
        for block in split_blocks(texts):
            yield from self.attempt(block, top_k, targets)

    def describe_random(self, text: str, seed: int = 0) -> list[str]:
        """Mask a random word of `text` and describe the prediction in four lines."""
        return self.mask_random_word(text, seed).describe()

    def mask_random_word(self, text: str, seed: int = 0) -> MaskedWord:
        """Mask all tokens of a random word, and predict it.

        Raise InputError if the text has no word, has a mask, or is too long.
        """
        prompt, mask_id = self.tokenizer.encode_prompt(text), self.tokenizer.mask_id
        ids: list[int] = prompt.ids.tolist()
        if mask_id in ids:
            raise InputError(
                f"{show_text(text)} already contains {self.tokenizer.mask_token}, so no random word"
                " is masked. Remove --random, or replace the mask by a word."
            )
        offsets = [(int(start), int(stop)) for start, stop in prompt.offsets]
        words = find_words(text, offsets, prompt.word_starts.tolist())
        if not words:
            raise InputError(f"{show_text(text)} has no word to mask. Give text with words.")
        word = random.Random(seed).choice(words)
        ids[word.first : word.end] = [mask_id] * (word.end - word.first)
        row = self.wrap_text(ids, text)
        [masks] = self.predict_ids([row], top_k=1)
        guessed = [mask[0].token_id for mask in masks]
        spelled = self.tokenizer.mask_token * len(guessed)
        return MaskedWord(text, word.start, word.stop, self.tokenizer.decode(guessed), spelled)

    def predict_ids(
        self,
        rows: Sequence[list[int]],
        top_k: int = 5,
        among: Sequence[Sequence[list[int]]] | None = None,
        batch_tokens: int | None = None,
    ) -> list[list[list[Prediction]]]:
        """Return the best `top_k` tokens for each mask of each row of ids (see `wrap`).

        Args:
            among: for each mask of each row, the only tokens to consider.
            batch_tokens: the maximum tokens per batch, padding included.
        """
        results: list[list[list[Prediction]]] = [[] for _ in rows]
        owners: list[int] = []
        hidden: list[Tensor] = []
        for batch in self.make_batches(rows, batch_tokens):
            masks = (batch.ids == self.tokenizer.mask_id).nonzero()
            positions = masks[:, 0] * batch.ids.shape[1] + masks[:, 1]
            owners += [batch.numbers[number] for number in masks[:, 0].tolist()]
            hidden.append(self.encode(batch, self.model.predictors(positions)))
        if hidden:
            rest = [iter(one) for one in among or ()]
            chosen = [next(rest[owner]) if among else None for owner in owners]
            # The decoder runs once for all batches, because loading its weights dominates its time.
            ranked = self._rank_alike(torch.cat(hidden), top_k, chosen)
            for owner, predictions in zip(owners, ranked, strict=True):
                results[owner].append(predictions)
        return results

    def _rank_alike(
        self, hidden: Tensor, top_k: int, chosen: Sequence[list[int] | None]
    ) -> list[list[Prediction]]:
        """Return the predictions for masks [M, D]; those with the same tokens run together."""
        alike: dict[int, list[int]] = defaultdict(list)
        for number, ids in enumerate(chosen):
            alike[id(ids)].append(number)
        ranked: dict[int, list[Prediction]] = {}
        for numbers in alike.values():
            found = self._rank(hidden[numbers], top_k, chosen[numbers[0]])
            ranked.update(zip(numbers, found, strict=True))
        return [ranked[number] for number in range(len(chosen))]

    @torch.inference_mode()
    def _rank(self, hidden: Tensor, top_k: int, among: list[int] | None) -> list[list[Prediction]]:
        ranked: list[list[Prediction]] = []
        for rows in hidden.split(_HEAD_ROWS):
            logits = self.model.head(rows).float()
            totals = logits.logsumexp(-1, keepdim=True)
            check_finite(totals)
            logits = logits[:, among or self._candidates]
            best = logits.topk(min(top_k, logits.shape[1]))
            scores = (best.values - totals).exp().tolist()
            for found, shares in zip(best.indices.tolist(), scores, strict=True):
                ids = [(among or self._candidates)[choice] for choice in found]
                ranked.append([self._predict(*pair) for pair in zip(ids, shares, strict=True)])
        return ranked

    @cached_property
    def _candidates(self) -> list[int]:
        """The ids of tokens that a text can have; the model may have more logits than tokens."""
        pieces, ids = TokenText(self.tokenizer), self.tokenizer.ordinary_ids.tolist()
        return [one for one in ids if not pieces.is_impossible(self.tokenizer.token(one))]

    def _predict(self, token_id: int, score: float) -> Prediction:
        """Return a prediction in the format of transformers: byte-level tokens keep their blank."""
        token = self.tokenizer.decode([token_id]) or self.tokenizer.token(token_id)
        return Prediction(token, token_id, score)

    def _encode_texts(
        self, texts: Sequence[str], top_k: int, targets: Sequence[str] | None
    ) -> list["_Row | InputError"]:
        """Return the row of each text, or its error; raise InputError for wrong arguments."""
        if top_k < 1:
            raise InputError(f"top_k = {top_k} must be at least 1.")
        if targets is not None and not targets:
            raise InputError("targets is empty. Name at least one word.")
        found = {begins: self._find_targets(targets or (), begins) for begins in (True, False)}
        if all(isinstance(ids, InputError) for ids in found.values()):
            raise_errors([found[True]])
        rows: list[_Row | InputError] = []
        for text in texts:
            try:
                prompt = self.tokenizer.encode_prompt(text)
                ids: list[int] = prompt.ids.tolist()
                row = self._make_row(ids, text)
                begins = self.tokenizer.masks_begin_words(text, ids) if targets else ()
                among = raise_errors(found[one] for one in begins)
                rows.append(_Row(row, among, self.tokenizer.find_unknown_share(prompt)))
            except InputError as error:
                rows.append(error)
        return rows

    def _make_row(self, ids: list[int], text: str) -> list[int]:
        mask = self.tokenizer.mask_token
        if self.tokenizer.mask_id not in ids:
            other = _MASKS.search(text)
            rule = f"has {other[0]}, but this model's mask is {mask}" if other else f"has no {mask}"
            raise InputError(f"{show_text(text)} {rule}. Write {mask} for the word to predict.")
        return self.wrap_text(ids, text)

    def _find_targets(self, targets: Sequence[str], begins: bool) -> list[int] | InputError:
        """Return the distinct ids of the targets for a mask that begins a word, or does not."""
        found = {target: self._find_target(target, begins) for target in targets}
        wrong = [self._show_pieces(word, begins) for word, one in found.items() if one is None]
        if wrong:
            has_comma = any("," in target for target in found)
            remedy = "Separate targets by blanks." if has_comma else "Choose single tokens."
            rule = "targets that are not one token of the model's vocabulary"
            return InputError(f"{rule}: {', '.join(wrong)}. {remedy}")
        return list(dict.fromkeys(one for one in found.values() if one is not None))

    def _find_target(self, target: str, begins: bool) -> int | None:
        """Return the token of a target for a mask, or None if it is not one token.

        It is the first spelling that is one token, or else the vocabulary's token of this name.
        """
        spelled = self._spell_target(target, begins)
        known = (ids[0] for ids in spelled if len(ids) == 1 and ids[0] != self.tokenizer.unk_id)
        return next(known, self.tokenizer.token_id(target))

    def _spell_target(self, target: str, begins: bool) -> list[list[int]]:
        """Return the tokens of a target as the text needs it, and with or without a blank."""
        # Without a blank, WordPiece's tokens are those inside of words, which are no words.
        forms = [begins] if begins and self.tokenizer.kind == "wordpiece" else [begins, not begins]
        texts = (self.tokenizer.mask_token + " " * blank + target for blank in forms)
        return [self.tokenizer.encode_prompt(text).ids.tolist()[1:] for text in texts]

    def _show_pieces(self, target: str, begins: bool) -> str:
        shortest = min(self._spell_target(target, begins), key=len)
        pieces = " ".join(show_tokens(self.tokenizer, shortest))
        return f"{show_text(target)} ({pieces or 'nothing'})"


class _Row(NamedTuple):
    """The ids of a text, for each mask the ids of the targets, if any, and the unknown share."""

    ids: list[int]
    among: list[list[int]]
    unknown_share: float
