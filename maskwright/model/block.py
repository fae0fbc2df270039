"""One layer of the encoder. T tokens, W wanted tokens, D width."""

from torch import Tensor, nn

from maskwright.model.attention import SelfAttention
from maskwright.model.attention_context import LayerContext
from maskwright.model.config import EncoderConfig
from maskwright.model.dropout import Dropout
from maskwright.model.mlp import MLP, GatedMLP
from maskwright.model.norms import build_norm


class EncoderBlock(nn.Module):
    """Attention and MLP, each with a residual connection and a norm: [T, D] -> [T, D].

    Post-norm (BERT): ``x = norm(x + f(x))``. Pre-norm: ``x = x + f(norm(x))``; Xiong et al., "On
    Layer Normalization in the Transformer Architecture", 2020. A block that is not `normed` has
    no norm before its attention (ModernBERT's first, whose input the embedding norm made).
    With `wanted` [W], places in [T], the block ends for those tokens alone: [T, D] -> [W, D].
    """

    def __init__(self, config: EncoderConfig, normed: bool = True) -> None:
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.attention_norm = build_norm(config) if normed else nn.Identity()
        self.attention = SelfAttention(config)
        self.mlp_norm = build_norm(config)
        self.mlp = GatedMLP(config) if config.gated_mlp else MLP(config)
        self.dropout = Dropout(config.hidden_dropout)

    def forward(self, x: Tensor, layer: LayerContext, wanted: Tensor | None = None) -> Tensor:
        attended = self.attention(self.attention_norm(x) if self.pre_norm else x, layer, wanted)
        x = (x if wanted is None else x.index_select(0, wanted)) + self.dropout(attended)
        if self.pre_norm:
            return x + self.dropout(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x)
        return self.mlp_norm(x + self.dropout(self.mlp(x)))
