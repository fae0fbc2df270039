"""Embeddings of token ids and positions, sinusoids and rotary positions.

Sinusoids and rotary angles are computed in each forward pass and not stored in a table: a buffer
would have to be saved, moved and limited in length, and computing the angles costs less than one
row of a matrix product. T tokens, H heads, K head size, E width of the embeddings.
"""

import torch
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.model.layers import Dropout, build_norm


def rotary_frequencies(head_size: int, theta: float, device: torch.device | str = "cpu") -> Tensor:
    """Return the angle per position of each pair of dimensions of a head: [K / 2] in fp32."""
    steps = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    return 1.0 / (theta ** (steps / head_size))


def rotary_angles(positions: Tensor, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [T, 1, K / 2] in fp32, for `rotate`.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; the two
    halves of a head are the real and the imaginary parts ("rotate half" in transformers).
    """
    frequencies = rotary_frequencies(head_size, theta, positions.device)
    angles = (positions[:, None].float() * frequencies).unsqueeze(1)
    return angles.cos(), angles.sin()


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """Return sines, then cosines, of descending frequencies: [T] -> [T, E].

    Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None].float() / (10_000.0 ** (steps / size))
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def _table(rows: int, size: int, padding_idx: int | None = None) -> nn.Embedding:
    # nn.Embedding draws the same by normal_, which on the device meta imports torch._dynamo: 2 s.
    return nn.Embedding(rows, size, padding_idx, _weight=torch.randn(rows, size))


class Embeddings(nn.Module):
    """``dropout(norm(word + position + token_type))``: [T] -> [T, E].

    Devlin et al., "BERT", 2019. The configuration selects the parts.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.word = _table(config.vocab_size, size, config.pad_token_id)
        learned, types = config.positions == "learned", config.type_vocab_size
        self.position = _table(config.max_position_embeddings, size) if learned else None
        self.token_type = _table(types, size) if types else None
        self.sinusoidal = config.positions == "sinusoidal"
        self.norm = build_norm(config, size) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.embedding_dropout)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        x = self.word(input_ids)
        if self.token_type is not None:
            types = self.token_type.weight[0]  # default: type 0 for all tokens
            x = x + (types if token_type_ids is None else self.token_type(token_type_ids))
        if self.position is not None:
            x = x + self.position(positions)
        if self.sinusoidal:
            x = x + sinusoids(positions, x.shape[-1]).to(x.dtype)
        return self.dropout(self.norm(x))
