"""One layer of the encoder. T tokens, W wanted tokens, D width.

The encoder: embeddings and a stack of blocks over packed tokens.

T tokens, W wanted tokens, D width.
"""

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.attention import LayerContext, SelfAttention, choose_backend
from maskwright.model.config import AttentionBackend, EncoderConfig, LayerType
from maskwright.model.embeddings import Embeddings, rotary_angles
from maskwright.model.layers import MLP, Dropout, GatedMLP, build_norm


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


class Encoder(nn.Module):
    """Token ids to contextual vectors: [T] -> [T, D].

    Embeddings of another width go through a projection first (Clark et al., "ELECTRA", 2020).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        width, size = config.embedding_width, config.hidden_size
        self.project = nn.Linear(width, size) if width != size else nn.Identity()
        self.blocks = nn.ModuleList(
            EncoderBlock(config, normed=layer > 0 or config.first_attention_norm)
            for layer in range(config.num_hidden_layers)
        )
        pre_norm = config.norm_position == "pre"
        self.final_norm = build_norm(config) if pre_norm else nn.Identity()

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        token_type_ids: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Encodes packed tokens; what blocks share is computed once, before the first.

        Args:
            input_ids: [T] int64.
            context: where the segments of [T] begin and end.
            token_type_ids: [T] int64 below ``type_vocab_size``; None = type 0 everywhere.
            wanted: [W] int64, places in [T] of the tokens whose vectors are returned, [W, D]; in
                the last block the others are only looked at. None = all of them, [T, D].
        """
        backend = self._choose_backend(input_ids.device, context.row_length)
        kinds = dict.fromkeys(self.config.layer_types)
        layers = {kind: self._layer_context(context, kind, backend) for kind in kinds}
        x = self.project(self.embeddings(input_ids, context.positions, token_type_ids))
        last = self.blocks[-1]
        for block, kind in zip(self.blocks, self.config.layer_types, strict=True):
            x = block(x, layers[kind], wanted if block is last else None)
        return self.final_norm(x)

    def _choose_backend(self, device: torch.device, row_length: int) -> AttentionBackend:
        if self.config.attention_backend != "auto":
            return self.config.attention_backend
        dtype = self.embeddings.word.weight.dtype
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
        dropout = self.config.attention_dropout if self.training else 0.0
        return choose_backend(device, dtype, dropout, row_length)

    def _layer_context(
        self, context: AttentionContext, kind: LayerType, backend: AttentionBackend
    ) -> LayerContext:
        config, window, angles = self.config, self.config.window(kind), None
        if config.positions == "rotary":
            angles = rotary_angles(context.positions, config.head_size, config.theta(kind))
        visible = context.attention_mask(window) if backend in ("products", "sdpa") else None
        return LayerContext(context, window, backend, visible, angles)
