"""Multi-head self-attention. T tokens, D width, H heads, K head size (D = H K)."""

from torch import Tensor, nn

from maskwright.model.attend import attend
from maskwright.model.attention_context import LayerContext
from maskwright.model.config import EncoderConfig
from maskwright.model.norms import RMSNorm
from maskwright.model.positions import rotate


class SelfAttention(nn.Module):
    """``output(attend(q, k, v))`` with q, k, v from one fused projection: [T, D] -> [T, D].

    Vaswani et al., "Attention Is All You Need", 2017. The rows of ``qkv.weight`` [3 D, D] are
    those of q, then k, then v, head by head. With `wanted` [W], only those tokens: [W, D].
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, bias = config.hidden_size, config.attention_bias
        self.heads_and_size = (config.num_attention_heads, config.head_size)
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(size, 3 * size, bias=bias)
        self.q_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_size, config.norm_eps) if config.qk_norm else None
        self.output = nn.Linear(size, size, bias=bias)

    def forward(self, x: Tensor, layer: LayerContext, wanted: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), 3, *self.heads_and_size).unbind(1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if layer.angles is not None:
            q, k = rotate(q, layer.angles), rotate(k, layer.angles)
        dropout = self.dropout if self.training else 0.0
        attended = attend(
            q, k, v, layer.context, layer.window, dropout, layer.backend, layer.visible
        )
        attended = attended.flatten(1)
        return self.output(attended if wanted is None else attended.index_select(0, wanted))
