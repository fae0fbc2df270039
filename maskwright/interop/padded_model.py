"""Our model as others expect one: padded rows and an attention mask in, logits of every slot out.

The blocks see packed tokens here as everywhere: B padded rows are flattened to B * L tokens in
rows of L, in which padding is a segment of its own. B rows, L slots in each, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.classifier import Classifier
from maskwright.model.pretraining import MaskedLanguageModel


@dataclass(frozen=True)
class PaddedContext(AttentionContext):
    """A context that asks nothing about its sizes, so that a traced graph leaves them open."""

    def attention_mask(self, window: int | None) -> Tensor:
        """As in `AttentionContext`; a window as wide as the row is applied like any other."""
        visible = super().attention_mask(None)
        if window is None:
            return visible
        place = torch.arange(self.row_length, device=visible.device)
        return visible & ((place[:, None] - place[None, :]).abs() <= window)


class PaddedModel(nn.Module):
    """``logits = model(input_ids, attention_mask)``: [B, L], [B, L] -> [B, L, V].

    Logits of padding mean nothing, nor do those of a row's first token where a token is predicted
    from the one before it. Positions count the slots of a row, as in transformers.
    """

    inputs = ("input_ids", "attention_mask")

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows, length = input_ids.shape
        hidden = self.model.encoder(input_ids.reshape(-1), _describe_rows(attention_mask))
        if self.model.config.next_token_prediction:
            hidden = hidden[self.model.predictors(torch.arange(rows * length))]
        return self.model.head(hidden).unflatten(0, (rows, length))


class PaddedClassifier(nn.Module):
    """The same for a classifier of K labels: -> [B, K] for texts, [B, L, K] for tokens.

    A model that knows types of tokens takes ``token_type_ids`` [B, L] as a third input.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model
        types = ("token_type_ids",) if model.config.type_vocab_size > 1 else ()
        self.inputs = (*PaddedModel.inputs, *types)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        types = None if token_type_ids is None else token_type_ids.reshape(-1)
        context = _describe_rows(attention_mask)
        hidden = self.model.encoder(input_ids.reshape(-1), context, types)
        hidden = hidden.unflatten(0, input_ids.shape)
        head, form = self.model.head, self.model.head_config
        if form.level == "token":
            return head(hidden)
        if form.pooling == "cls":
            return head(hidden[:, 0])
        real = attention_mask[..., None].to(hidden.dtype)
        if form.pooling == "late":
            return (head(hidden) * real).sum(1) / real.sum(1)
        return head((hidden * real).sum(1) / real.sum(1))


def _describe_rows(attention_mask: Tensor) -> PaddedContext:
    rows, length = attention_mask.shape
    return PaddedContext(
        positions=torch.arange(length).expand(rows, length).reshape(-1),
        segment_ids=attention_mask.reshape(-1),
        cu_seqlens=torch.zeros(1, dtype=torch.int32),  # for kernels that are not traced
        max_seqlen=length,
        row_length=length,
    )
