"""An encoder with a head that labels texts or tokens, for fine-tuning.

R rows of L tokens, T = R L tokens, W output positions, D width, F features, K labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig, HeadActivation, HeadConfig
from maskwright.model.layers import ACTIVATIONS, Dropout, build_norm
from maskwright.model.masked_lm import EncoderModel

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {**ACTIVATIONS, "tanh": torch.tanh}
_NUM_MATCHES = 8  # 2 means for each of 2 layers (embeddings and last) and each of 2 texts


class ClassifierHead(nn.Module):
    """``output(dropout(norm(act(dense(x)))))``: [..., F] -> [..., K]."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        features = _NUM_MATCHES if head.pooling == "bi" else size
        self.activation: HeadActivation | None = head.activation
        if head.activation:
            self.dense = nn.Linear(features, size, bias=head.bias)
        if head.pooling == "bi":
            self.weigh = nn.Linear(size, 1, bias=False)
        self.norm = build_norm(config) if head.norm else nn.Identity()
        self.dropout = Dropout(head.dropout)
        self.output = nn.Linear(size if head.activation else features, head.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation:
            x = _ACTIVATIONS[self.activation](self.dense(x))
        return self.output(self.dropout(self.norm(x)))


class Classifier(EncoderModel):
    """``head(pool(encoder(input_ids)))``: [T] -> [R, K]; for tokens, [T] or [W] -> [T or W, K].

    Devlin et al., "BERT", 2019. `HeadConfig` sets the level (texts or tokens) and the pooling.
    """

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__(config)
        self.head_config = head
        self.head = ClassifierHead(config, head)

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        token_type_ids: Tensor | None = None,
        output_positions: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of each text [R, K], or of the tokens at `output_positions` [W, K].

        Args:
            input_ids: [T] int64, one text or pair per row (`context_from_lengths`).
            context: the lengths of the rows.
            token_type_ids: [T] int64, or None for type 0 everywhere; a model without token types
                uses them only to separate the texts of a pair.
            output_positions: [W] int64, indices into [T] of the tokens to label; None for texts.
        """
        pooling = self.head_config.pooling
        if pooling == "bi":
            assert token_type_ids is not None, "token types separate the texts of a pair"
            return self.head(self._compare(input_ids, separate_texts(context, token_type_ids)))
        if self.config.type_vocab_size < 2:
            token_type_ids = None
        if self.head_config.level != "text":
            return self.head(self.encoder(input_ids, context, token_type_ids, output_positions))
        assert output_positions is None, "output positions are for labels of tokens"
        first = torch.arange(0, input_ids.shape[0], context.row_length, device=input_ids.device)
        if pooling == "cls":
            return self.head(self.encoder(input_ids, context, token_type_ids, first))
        hidden = self.encoder(input_ids, context, token_type_ids)
        if pooling == "late":
            return pool_mean(self.head(hidden), context)
        return self.head(pool_mean(hidden, context))

    def _compare(self, input_ids: Tensor, context: AttentionContext) -> Tensor:
        embedded = self.encoder.embed(input_ids, context)
        hidden = self.encoder(input_ids, context, embedded=embedded)
        layers = [x.view(-1, context.row_length, x.shape[-1]) for x in (embedded, hidden)]
        texts = context.segment_ids.view(-1, context.row_length)
        logits = self.head.weigh(layers[0])[..., 0]
        return compare_texts(layers, weigh(logits, texts == 0), weigh(logits, texts == 1))


def separate_texts(context: AttentionContext, token_type_ids: Tensor) -> AttentionContext:
    """Return the context in which the two texts of a row (types 0 and 1) are segments 0 and 1."""
    second = token_type_ids.view(-1, context.row_length)
    real = context.segment_ids.view_as(second) == 0
    first_length = (real & (second == 0)).sum(1, keepdim=True)
    starts = torch.arange(real.shape[0], device=real.device)[:, None] * context.row_length
    bounds = torch.cat((starts, starts + first_length, starts + real.sum(1, keepdim=True)), 1)
    total = bounds.new_tensor([real.numel()])
    return replace(
        context,
        positions=context.positions - (second * first_length).flatten(),
        segment_ids=torch.where(real, second, 2).flatten().int(),
        cu_seqlens=torch.cat((bounds.flatten(), total)).int(),
    )


def weigh(logits: Tensor, inside: Tensor) -> Tensor:
    """Return weights [R, L], the softmax of logits over the tokens of a text, and 0 elsewhere."""
    return logits.masked_fill(~inside, -1e4).softmax(1) * inside


def compare_texts(layers: Sequence[Tensor], first: Tensor, second: Tensor) -> Tensor:
    """Return features [R, 4 N] of the similarity of two texts in N layers [R, L, D].

    Each token has its maximum cosine with the tokens of the other text (Zhang et al., "BERTScore",
    2020). The features are, for each layer and text, the mean of these and of their fourth powers,
    which emphasizes near synonyms and equal tokens. `first` and `second` [R, L] weight the tokens.
    """
    across = (first[:, :, None] > 0) & (second[:, None, :] > 0)
    matches: list[Tensor] = []
    for layer in layers:
        unit = F.normalize(layer, dim=-1)
        cosines = torch.bmm(unit, unit.mT).masked_fill(~across, 0).relu()
        for weights, axis in ((first, 2), (second, 1)):
            best = cosines.amax(axis)
            matches += [(best * weights).sum(1), (best.pow(4) * weights).sum(1)]
    return torch.stack(matches, -1)


def pool_mean(hidden: Tensor, context: AttentionContext) -> Tensor:
    """Return the mean of [T, D] over the tokens of each row, without padding: [R, D]."""
    real = (context.segment_ids == 0).view(-1, 1, context.row_length).to(hidden.dtype)
    rows = hidden.view(-1, context.row_length, hidden.shape[-1])
    return torch.bmm(real, rows)[:, 0] / real.sum(-1)
