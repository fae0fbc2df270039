"""Texts to vectors: the mean of a text's token vectors, or the vector of its first token.

As sentence-transformers computes them from a Transformer and a Pooling module. R texts in a
batch, L tokens in its longest, N texts, D width.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maskwright.errors import InputError
from maskwright.inference.text_model import TextBatch, TextModel, check_finite, split_blocks
from maskwright.model.pretraining import EncoderModel
from maskwright.model_folder.folder import Loaded, open_encoder
from maskwright.tokenizer.tokenizer import Tokenizer

Pooling = Literal["mean", "cls"]


class Embedder(TextModel[EncoderModel]):
    """Vectors of texts from the model in a folder; the API behind ``maskwright embed``.

    ::

        embed = Embedder("runs/mine/model")
        vectors = embed(["snails eat leaves", "larvae eat snails"])   # float32 [2, D]
        similarity = vectors @ vectors.T

    A text is encoded as in training: special tokens written in it are ordinary text. One longer
    than the model is cut at its length, [SEP] kept, and counted. An empty text has the vector of
    [CLS] [SEP]; of a model that knows neither, zeros.

    Args:
        folder: a model folder, or a run directory; a discriminator's will do, as no head is needed.
        device: where to compute; default: the GPU if there is one.
        pooling: ``mean`` of all tokens with [CLS] and [SEP], or ``cls``, the first token.
        normalize: whether vectors have length 1, so that products are cosines.

    Attributes:
        num_cut: how many texts were longer than the model so far.

    Raises:
        ModelFolderError: `folder` is not a model folder.
        InputError: there is no such device or pooling.
    """

    def __init__(
        self,
        folder: Path | str,
        device: torch.device | str | None = None,
        pooling: Pooling = "mean",
        normalize: bool = True,
    ) -> None:
        super().__init__(folder, device)
        self._pool_by(pooling, normalize)

    @staticmethod
    def _open(folder: Path | str) -> Loaded[EncoderModel]:
        return open_encoder(folder)

    @classmethod
    def from_parts(
        cls,
        model: EncoderModel,
        tokenizer: Tokenizer,
        add_special_tokens: bool = True,
        pooling: Pooling = "mean",
        normalize: bool = True,
    ) -> Self:
        """The same for a model in memory, on the device where it is."""
        made = super().from_parts(model, tokenizer, add_special_tokens)
        made._pool_by(pooling, normalize)
        return made

    def _pool_by(self, pooling: Pooling, normalize: bool) -> None:
        if pooling not in get_args(Pooling):
            raise InputError(f"pooling = {pooling} must be {' or '.join(get_args(Pooling))}.")
        self.pooling, self.normalize = pooling, normalize
        self.width = self.model.config.hidden_size
        self.num_cut = 0

    def __call__(
        self, texts: str | Sequence[str], batch_tokens: int | None = None
    ) -> NDArray[np.float32]:
        """The vectors of one text or many, float32 [N, D], in order.

        Args:
            texts: of any length.
            batch_tokens: most tokens, padding included, in one pass through the model.
        """
        texts = [texts] if isinstance(texts, str) else texts
        rows = [
            self._make_row(encoded.ids.tolist()) for encoded in self.tokenizer.encode_batch(texts)
        ]
        vectors = np.zeros((len(rows), self.width), np.float32)
        for batch in self.make_batches(rows, batch_tokens):
            vectors[batch.numbers] = self._pool(batch).cpu().numpy()
        check_finite(torch.from_numpy(vectors), "vectors")
        return vectors

    def stream(
        self, texts: Iterable[str], batch_tokens: int | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The vectors of more texts than memory holds: [n, D] of the next n, in order."""
        for block in split_blocks(texts):
            yield self(block, batch_tokens)

    def _make_row(self, ids: list[int]) -> list[int]:
        room = self.longest - len(self.wrap([]))
        self.num_cut += len(ids) > room
        return self.wrap(ids[:room])

    @torch.inference_mode()
    def _pool(self, batch: TextBatch) -> Tensor:
        """[R, D] in fp32."""
        (rows, longest), device = batch.ids.shape, self.device
        if self.pooling == "cls":
            vectors = self.encode(batch, torch.arange(rows, device=device) * longest).float()
        else:
            lengths = torch.tensor(batch.lengths, device=device)[:, None]
            real = (torch.arange(longest, device=device) < lengths).float()
            hidden = self.encode(batch).float().view(rows, longest, -1)
            vectors = torch.bmm(real[:, None], hidden)[:, 0] / lengths
        return F.normalize(vectors, dim=-1) if self.normalize else vectors
