"""An encoder with a head that labels texts or tokens, for fine-tuning.

R rows of L tokens, T = R L tokens, W output positions, D width, K labels.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig, HeadActivation, HeadConfig
from maskwright.model.encoder import Encoder
from maskwright.model.layers import Dropout, build_norm
from maskwright.model.masked_lm import EncoderModel

_ACTIVATIONS: dict[HeadActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class ClassifierHead(nn.Module):
    """``output(dropout(norm(act(dense(x)))))``: [..., D] -> [..., K]."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.activation: HeadActivation | None = head.activation
        if head.activation:
            self.dense = nn.Linear(size, size, bias=head.bias)
        self.norm = build_norm(config) if head.norm else nn.Identity()
        self.dropout = Dropout(head.dropout)
        self.output = nn.Linear(size, head.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation:
            x = _ACTIVATIONS[self.activation](self.dense(x))
        return self.output(self.dropout(self.norm(x)))


class Classifier(EncoderModel):
    """``head(pool(encoder(input_ids)))``: [T] -> [R, K]; of tokens, [T] or [W] -> [T or W, K].

    Devlin et al., "BERT", 2019. `HeadConfig` states the level (texts or tokens) and the pooling.
    """

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.config, self.head_config = config, head
        self.encoder = Encoder(config)
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
            input_ids: [T] int64, one text per row (`context_from_lengths`).
            context: the lengths of the texts.
            token_type_ids: [T] int64, or None for type 0 everywhere; ignored by a model without
                token types.
            output_positions: [W] int64, indices into [T] of the tokens to label; None for texts.
        """
        if self.config.type_vocab_size < 2:
            token_type_ids = None
        if self.head_config.level == "token":
            return self.head(self.encoder(input_ids, context, token_type_ids, output_positions))
        assert output_positions is None, "texts are labeled as a whole"
        first = torch.arange(0, len(input_ids), context.row_length, device=input_ids.device)
        if self.head_config.pooling == "cls":
            return self.head(self.encoder(input_ids, context, token_type_ids, first))
        hidden = self.encoder(input_ids, context, token_type_ids)
        if self.head_config.pooling == "late":
            return pool_mean(self.head(hidden), context)
        return self.head(pool_mean(hidden, context))


def pool_mean(hidden: Tensor, context: AttentionContext) -> Tensor:
    """Return the mean [R, D] of [T, D] over the tokens of each row, without its padding."""
    real = (context.segment_ids == 0).view(-1, 1, context.row_length).to(hidden.dtype)
    rows = hidden.view(-1, context.row_length, hidden.shape[-1])
    return torch.bmm(real, rows)[:, 0] / real.sum(-1)
