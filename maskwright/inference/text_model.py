"""A trained model with its tokenizer: the base class of inference.

Texts are sorted by length and run in batches of similar lengths, which minimizes padding. R rows of
L tokens, T = R L tokens, P output positions, D width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from maskwright.attention_context import context_from_lengths
from maskwright.errors import ConfigError, InputError, ModelFolderError
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.folder import Loaded, open_model
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import choose_device

Item = TypeVar("Item")
Kind = TypeVar("Kind", bound=EncoderModel)

_MAX_TEXTS, _MAX_CHARACTERS = 4096, 4_000_000  # limits of a block of a stream
# Tokens per batch: on a CPU, enough for matrix products at full speed and few enough for their
# results to fit in the cache.
_BATCH_TOKENS_CPU, _BATCH_TOKENS = 768, 16_384
_PADDED_SHARE = 1 / 64  # at most one token in 64 is padding
_MAX_SHOWN = 60  # characters of a text in an error message


def check_finite(values: Tensor, what: str = "probabilities") -> None:
    """Raise a ModelFolderError unless all values are finite; sorting would silently accept NaN."""
    if not values.isfinite().all():
        raise ModelFolderError(
            f"the model returns no finite {what}: its weights or its config.json are damaged. "
            "Restore the folder."
        )


def split_blocks(
    items: Iterable[Item], measure: Callable[[Item], int] = len
) -> Iterator[list[Item]]:
    """Yield consecutive items in blocks of limited size; `measure` counts characters."""
    block: list[Item] = []
    characters = 0
    for item in items:
        block.append(item)
        characters += measure(item)
        if len(block) == _MAX_TEXTS or characters >= _MAX_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def raise_errors(results: Iterable[Item | InputError]) -> list[Item]:
    """Return the results; raise the first error among them."""
    good: list[Item] = []
    for result in results:
        if isinstance(result, InputError):
            raise result
        good.append(result)
    return good


@dataclass(frozen=True)
class TextBatch:
    """A batch of rows: their indices, their lengths, and padded ids [R, L]."""

    numbers: list[int]
    lengths: list[int]
    ids: Tensor


class TextModel(Generic[Kind]):
    """A model in evaluation mode, its tokenizer, and whether inputs are [CLS] … [SEP].

    Args:
        folder: a model folder, or a run directory.
        device: the device; default: a GPU if there is one.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device.
    """

    def __init__(self, folder: Path | str, device: torch.device | str | None = None) -> None:
        self._use(self._open(folder))
        try:
            self.model.to(choose_device(str(device or "auto"), field="device"))
        except ConfigError as error:  # here the device is an argument, not a field
            raise InputError(str(error)) from None

    @staticmethod
    def _open(folder: Path | str) -> Loaded[Any]:
        return open_model(folder)

    @classmethod
    def from_parts(cls, model: Kind, tokenizer: Tokenizer, add_special_tokens: bool = True) -> Self:
        """Return an instance for a model in memory, on the model's device."""
        made = cls.__new__(cls)
        made._use(Loaded(model, tokenizer, add_special_tokens))
        return made

    def _use(self, loaded: Loaded[Kind]) -> None:
        self.model: Kind = loaded.model
        self.model.eval()
        self.tokenizer = loaded.tokenizer
        self.longest = loaded.model.config.max_position_embeddings
        self.wrap = loaded.wrap

    def make_batches(
        self, rows: Sequence[list[int]], batch_tokens: int | None = None
    ) -> Iterator[TextBatch]:
        """Yield all rows of ids that are not empty, in batches of similar lengths.

        `batch_tokens` counts padding, too; default: by device.
        """
        if batch_tokens is None:
            batch_tokens = _BATCH_TOKENS_CPU if self.device.type == "cpu" else _BATCH_TOKENS
        for numbers in plan_batches([len(row) for row in rows], batch_tokens, _PADDED_SHARE):
            lengths = [len(rows[number]) for number in numbers]
            padding = [self.tokenizer.pad_id] * lengths[-1]
            padded = [rows[number] + padding[len(rows[number]) :] for number in numbers]
            yield TextBatch(numbers, lengths, torch.tensor(padded))

    def wrap_text(self, ids: list[int], text: str) -> list[int]:
        """Return the ids of a text as model input; raise InputError if the text is too long."""
        row = self.wrap(ids)
        if len(row) > self.longest:
            raise InputError(
                f"{show_text(text)} has {len(row)} tokens, more than the model's "
                f"max_position_embeddings = {self.longest}. Shorten it."
            )
        return row

    @torch.inference_mode()
    def encode(self, batch: TextBatch, output_positions: Tensor | None = None) -> Tensor:
        """Return the vectors of a batch [T, D], or those at `output_positions` (into T) [P, D]."""
        context = context_from_lengths(batch.lengths, device=self.device)
        if output_positions is not None:
            output_positions = output_positions.to(self.device)
        ids = batch.ids.flatten().to(self.device)
        return self.model.encoder(ids, context, output_positions=output_positions)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device


def plan_batches(
    lengths: Sequence[int], batch_tokens: int, padded_share: float = 1
) -> Iterator[list[int]]:
    """Yield batches of text indices of similar lengths, of at most `batch_tokens` padded tokens.

    The longest text of a batch is last; a text longer than `batch_tokens` is a batch by itself, and
    empty texts are left out.

    Args:
        padded_share: the maximum share of `batch_tokens` that is padding.
    """
    batch: list[int] = []
    real = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[number]
        is_full = (len(batch) + 1) * length > batch_tokens
        if batch and (is_full or len(batch) * length - real > padded_share * batch_tokens):
            yield batch
            batch, real = [], 0
        if length:
            batch.append(number)
            real += length
    if batch:
        yield batch


def show_text(text: str) -> str:
    """Return the beginning of a text as one line, for error messages."""
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= _MAX_SHOWN else f'"{line[:_MAX_SHOWN]}…"'
