"""The encoder: embeddings and a stack of blocks over packed tokens.

T tokens, W output positions, D width.
"""

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.attention import (
    LayerContext,
    RelativePositions,
    SelfAttention,
    choose_backend,
)
from maskwright.model.config import AttentionBackend, EncoderConfig, LayerType
from maskwright.model.layers import MLP, Dropout, Embeddings, GatedMLP, build_norm, rotary_angles


class EncoderBlock(nn.Module):
    """Attention and MLP, each with a residual connection and a norm: [T, D] -> [T, D].

    Post-norm (BERT): ``x = norm(x + f(x))``. Pre-norm: ``x = x + f(norm(x))``; Xiong et al., "On
    Layer Normalization in the Transformer Architecture", 2020. A block that is not `normed` has
    no norm before its attention (ModernBERT's first, which follows the norm of the embeddings).
    With `output_positions` [W], indices into [T], the output is [W, D].
    """

    def __init__(self, config: EncoderConfig, normed: bool = True) -> None:
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.attention_norm = build_norm(config) if normed else nn.Identity()
        self.attention = SelfAttention(config)
        self.mlp_norm = build_norm(config)
        self.mlp = GatedMLP(config) if config.gated_mlp else MLP(config)
        self.dropout = Dropout(config.hidden_dropout)

    def forward(
        self, x: Tensor, layer: LayerContext, output_positions: Tensor | None = None
    ) -> Tensor:
        normed = self.attention_norm(x) if self.pre_norm else x
        attended = self.attention(normed, layer, output_positions)
        if output_positions is not None:
            x = x.index_select(0, output_positions)
        x = x + self.dropout(attended)
        if self.pre_norm:
            return x + self.dropout(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x)
        return self.mlp_norm(x + self.dropout(self.mlp(x)))


class Encoder(nn.Module):
    """``final_norm(block_n(… block_1(project(embeddings(ids)))))``: [T] -> [T, D].

    Devlin et al., "BERT", 2019. Embeddings of another width are projected to D first (Clark et
    al., "ELECTRA", 2020).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        width, size = config.embedding_width, config.hidden_size
        self.project = nn.Linear(width, size) if width != size else nn.Identity()
        self.relative = RelativePositions(config) if config.positions == "relative" else None
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
        output_positions: Tensor | None = None,
        embedded: Tensor | None = None,
    ) -> Tensor:
        """Encode packed tokens; masks and angles are computed once for all blocks.

        Args:
            input_ids: [T] int64.
            context: the boundaries of the segments in [T].
            token_type_ids: [T] int64 below ``type_vocab_size``; None = type 0 everywhere.
            output_positions: [W] int64, indices into [T] of the vectors to return, [W, D]; the last
                block computes only keys and values for the others. None = all, [T, D].
            embedded: [T, D] the result of `embed`, if already computed.
        """
        backend = self._choose_backend(input_ids.device, context.row_length)
        kinds = dict.fromkeys(self.config.layer_types)
        relative = None if self.relative is None else self.relative(context.row_length)
        layers = {kind: self._layer_context(context, kind, backend, relative) for kind in kinds}
        x = self.embed(input_ids, context, token_type_ids) if embedded is None else embedded
        last = self.blocks[-1]
        for block, kind in zip(self.blocks, self.config.layer_types, strict=True):
            x = block(x, layers[kind], output_positions if block is last else None)
        return self.final_norm(x)

    def embed(
        self, input_ids: Tensor, context: AttentionContext, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the input vectors of the first block: [T, D]."""
        return self.project(self.embeddings(input_ids, context.positions, token_type_ids))

    def _choose_backend(self, device: torch.device, row_length: int) -> AttentionBackend:
        dtype, chosen = self.embeddings.word.weight.dtype, self.config.attention_backend
        if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
        # Validations are in fp32, which varlen does not have.
        if chosen != "auto" and not (chosen == "varlen" and dtype is torch.float32):
            return chosen
        if self.relative is not None:
            return "products"
        dropout = self.config.attention_dropout if self.training else 0.0
        return choose_backend(device, dtype, dropout, row_length, self.config.head_size)

    def _layer_context(
        self,
        context: AttentionContext,
        kind: LayerType,
        backend: AttentionBackend,
        relative: Tensor | None,
    ) -> LayerContext:
        config, window, angles = self.config, self.config.window(kind), None
        if config.positions == "rotary":
            angles = rotary_angles(context.positions, config.head_size, config.theta(kind))
        needs_mask = backend in ("products", "sdpa")
        attention_mask = context.attention_mask(window) if needs_mask else None
        return LayerContext(context, window, backend, attention_mask, angles, relative)


def count_stacked_matrices(model: nn.Module) -> dict[str, int]:
    """Return the number of matrices in each weight of `model` that has several, by its name.

    Queries, keys and values are stacked in one weight, as are the two inputs of a gated MLP;
    optimizers that work on whole matrices (Muon) must split them.
    """
    counts: dict[str, int] = {}
    for name, block in model.named_modules():
        if isinstance(block, EncoderBlock):
            counts[f"{name}.attention.qkv.weight"] = 3
            if block.mlp.inputs > 1:
                counts[f"{name}.mlp.input.weight"] = block.mlp.inputs
    return counts
