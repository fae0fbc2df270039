"""Which words a trained model would put in the place of [MASK].

Texts are sorted by length and run in batches of similar lengths, so that little is computed for
padding, and only the masked positions reach the model's head. T tokens, M masks, V vocabulary.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from maskwright.artifact.folder import open_model
from maskwright.errors import InputError, ModelFolderError
from maskwright.inference.hidden_word import HiddenWord, find_words
from maskwright.model.attention_context import context_from_lengths
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.tokenizer.tokenizer import Tokenizer

_HEAD_ROWS = 1024  # masks that go through the head together: bounds the [M, V] probabilities
_SHOWN = 60  # characters of a sentence in an error


@dataclass(frozen=True)
class Prediction:
    """One word for one mask, and the model's probability for it among its whole vocabulary."""

    token: str
    token_id: int
    score: float


@dataclass(frozen=True)
class FillResult:
    """The predictions for each mask of a text, in its order, the likeliest first."""

    text: str
    masks: list[list[Prediction]]

    def to_json(self) -> dict[str, Any]:
        """Plain values: ``{"text", "masks": [[{"token", "token_id", "score"}, …], …]}``."""
        return dataclasses.asdict(self)


class FillMask:
    """Fills masks with the model in a folder; the API behind ``maskwright fill``.

    ::

        fill = FillMask("runs/mine/model")
        [result] = fill("Paris is the [MASK] of France.")
        result.masks[0][0].token

    Raises:
        ModelFolderError: `folder` is not a model folder.
    """

    def __init__(self, folder: Path | str, device: torch.device | str | None = None) -> None:
        loaded = open_model(folder)
        self._take(loaded.model, loaded.tokenizer, loaded.add_special_tokens)
        self.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @classmethod
    def from_parts(
        cls, model: MaskedLanguageModel, tokenizer: Tokenizer, add_special_tokens: bool = True
    ) -> Self:
        """The same for a model in memory, on the device where it is."""
        fill = cls.__new__(cls)
        fill._take(model, tokenizer, add_special_tokens)
        return fill

    def _take(self, model: MaskedLanguageModel, tokenizer: Tokenizer, wrap: bool) -> None:
        self.model, self.tokenizer = model.eval(), tokenizer
        self._before = [tokenizer.cls_id] if wrap else []
        self._after = [tokenizer.sep_id] if wrap else []

    def __call__(
        self,
        texts: str | Sequence[str],
        top_k: int = 5,
        targets: Sequence[str] | None = None,
        batch_tokens: int = 8192,
    ) -> list[FillResult]:
        """The likeliest words for every mask of every text.

        Args:
            texts: one text or many, each with one or more masks.
            top_k: predictions for each mask; at most the size of the vocabulary.
            targets: consider only these words; scores stay shares of the whole vocabulary.
            batch_tokens: most tokens, padding included, in one pass through the model.

        Returns:
            One result for each text, in order.

        Raises:
            InputError: a text without a mask or longer than the model, a target that is not one
                token, no targets at all, or a `top_k` below 1.
        """
        if top_k < 1:
            raise InputError(f"top_k = {top_k} must be at least 1.")
        if targets is not None and not targets:
            raise InputError("targets is empty. Name at least one word.")
        texts = [texts] if isinstance(texts, str) else list(texts)
        rows = [self._encode(text) for text in texts]
        among = None if targets is None else [self._find_target(target) for target in targets]
        found = self.predict_ids(rows, top_k, among, batch_tokens)
        return [FillResult(text, masks) for text, masks in zip(texts, found, strict=True)]

    def describe_random(self, text: str, seed: int = 0) -> list[str]:
        """Hides a random word of `text` and tells in four lines what the model puts there."""
        return self.hide_random_word(text, seed).describe()

    def hide_random_word(self, text: str, seed: int = 0) -> HiddenWord:
        """Hides one whole word, all its tokens, and predicts it.

        Raises:
            InputError: `text` has no word, or is longer than the model.
        """
        prompt, mask_id = self.tokenizer.encode_prompt(text), self.tokenizer.mask_id
        ids: list[int] = prompt.ids.tolist()
        offsets = [(int(start), int(stop)) for start, stop in prompt.offsets]
        words = find_words(text, offsets, prompt.word_starts.tolist())
        words = [word for word in words if mask_id not in ids[word.first : word.end]]
        if not words:
            raise InputError(f"{_show(text)} has no word to hide.")
        word = random.Random(seed).choice(words)
        # The text may hold masks of its own; those of the hidden word come after the earlier ones.
        earlier = ids[: word.first].count(mask_id)
        ids[word.first : word.end] = [mask_id] * (word.end - word.first)
        row = self._wrap_text(ids, text)
        [masks] = self.predict_ids([row], 1, None, len(row))
        guessed = [mask[0].token_id for mask in masks[earlier:][: word.end - word.first]]
        spelled = self.tokenizer.mask_token * len(guessed)
        return HiddenWord(text, word.start, word.stop, self.tokenizer.decode(guessed), spelled)

    def _encode(self, text: str) -> list[int]:
        ids = self.tokenizer.encode_prompt(text).ids.tolist()
        if self.tokenizer.mask_id not in ids:
            mask = self.tokenizer.mask_token
            raise InputError(f"{_show(text)} has no {mask}. Write {mask} for the word to predict.")
        return self._wrap_text(ids, text)

    def _wrap_text(self, ids: list[int], text: str) -> list[int]:
        row, longest = self.wrap(ids), self.model.config.max_position_embeddings
        if len(row) > longest:
            raise InputError(
                f"{_show(text)} has {len(row)} tokens, more than the model's "
                f"max_position_embeddings = {longest}. Shorten it."
            )
        return row

    def wrap(self, ids: list[int]) -> list[int]:
        """The ids with [CLS] and [SEP] around them, if the model was trained so."""
        return self._before + ids + self._after

    def _find_target(self, target: str) -> int:
        found = self.tokenizer.token_id(target)
        if found is not None:
            return found
        ids = self.tokenizer.encode(target).ids.tolist()
        if len(ids) == 1 and ids[0] != self.tokenizer.unk_id:
            return ids[0]
        pieces = " ".join(self.tokenizer.token(piece) for piece in ids) or "nothing"
        raise InputError(
            f"target {_show(target)} is not one token of the model's vocabulary but {pieces}. "
            "Choose targets that are."
        )

    @torch.no_grad()
    def predict_ids(
        self,
        rows: Sequence[list[int]],
        top_k: int = 5,
        among: list[int] | None = None,
        batch_tokens: int = 8192,
    ) -> list[list[list[Prediction]]]:
        """For each row of ids (see `wrap`), for each of its masks, the best `top_k` tokens."""
        results: list[list[list[Prediction]]] = [[] for _ in rows]
        for batch in plan_batches([len(row) for row in rows], batch_tokens):
            lengths = [len(rows[number]) for number in batch]
            ids = torch.full((len(batch), max(lengths)), self.tokenizer.pad_id)
            for place, number in enumerate(batch):
                ids[place, : lengths[place]] = torch.tensor(rows[number])
            device = next(self.model.parameters()).device
            context = context_from_lengths(lengths, max(lengths), device)
            places = (ids == self.tokenizer.mask_id).flatten().nonzero()[:, 0]
            hidden = self.model.encoder(ids.flatten().to(device), context)
            owners = [batch[place] for place in (places // ids.shape[1]).tolist()]
            hidden = hidden.index_select(0, places.to(device))
            for owner, predictions in zip(owners, self._rank(hidden, top_k, among), strict=True):
                results[owner].append(predictions)
        return results

    def _rank(
        self, hidden: Tensor, top_k: int, among: list[int] | None
    ) -> Iterator[list[Prediction]]:
        choices = torch.tensor(
            list(dict.fromkeys(among)) if among else range(self.tokenizer.vocab_size),
            device=hidden.device,
        )
        for rows in hidden.split(_HEAD_ROWS):
            probabilities = self.model.head(rows).float().softmax(-1)[:, choices]
            if not probabilities.isfinite().all():
                raise ModelFolderError(
                    "the model gives no finite probabilities: its weights or its config.json are "
                    "damaged."
                )
            best = probabilities.topk(min(top_k, len(choices)))
            ids = choices[best.indices]
            for token_ids, scores in zip(ids.tolist(), best.values.tolist(), strict=True):
                yield [
                    Prediction(self._spell(token_id), token_id, score)
                    for token_id, score in zip(token_ids, scores, strict=True)
                ]

    def _spell(self, token_id: int) -> str:
        """The token as transformers writes it, with the blank that byte-level tokens begin with."""
        return self.tokenizer.decode([token_id]) or self.tokenizer.token(token_id)


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of texts to run together: similar lengths, at most `batch_tokens` when padded."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batch and (len(batch) + 1) * lengths[number] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _show(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= _SHOWN else f'"{line[:_SHOWN]}…"'
