"""NeoBERT for comparisons, written after the published code: transformers has no class for it.

The authors' class is in ``model.py`` and ``rotary.py`` of chandar-lab/NeoBERT on the Hugging Face
hub, and needs xformers, whose ``SwiGLU`` stacks the two inputs as ``w12``. Its tensor names, shapes
and configuration are those of the published files. Le Breton et al., "NeoBERT", 2025.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

_THETA = 10_000.0


class NeoBERTConfig(PretrainedConfig):
    model_type = "neobert"

    def __init__(
        self,
        hidden_size: int = 768,
        num_hidden_layers: int = 28,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        norm_eps: float = 1e-6,
        vocab_size: int = 30_522,
        pad_token_id: int = 0,
        max_length: int = 1024,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.norm_eps = norm_eps
        self.vocab_size = vocab_size
        self.pad_token_id = pad_token_id
        self.max_length = max_length

    def _get_generation_parameters(self) -> dict[str, Any]:
        """Let transformers 5 save ``max_length``, which it takes for the length of an output."""
        return {}


def turn_neighbors(x: Tensor) -> Tensor:
    """Rotate the pairs (0, 1), (2, 3), … of each head of [batch, length, heads, size]."""
    length, size = x.shape[1], x.shape[-1]
    frequencies = 1.0 / _THETA ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class SwiGLU(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(size, 2 * inner, bias=False)
        self.w3 = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(first) * second)


class EncoderBlock(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        size, inner = config.hidden_size, int(2 * config.intermediate_size / 3)
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.wo = nn.Linear(size, size, bias=False)
        self.ffn = SwiGLU(size, 8 * ((inner + 7) // 8))
        self.attention_norm = nn.RMSNorm(size, config.norm_eps)
        self.ffn_norm = nn.RMSNorm(size, config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        split = self.qkv(self.attention_norm(x)).unflatten(-1, (self.heads, -1))
        q, k, v = split.chunk(3, dim=-1)
        q, k, v = (y.transpose(1, 2) for y in (turn_neighbors(q), turn_neighbors(k), v))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.wo(attended.transpose(1, 2).flatten(2))
        return x + self.ffn(self.ffn_norm(x))


class NeoBERT(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        layers = range(config.num_hidden_layers)
        self.transformer_encoder = nn.ModuleList(EncoderBlock(config) for _ in layers)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x, mask = self.encoder(input_ids), attention_mask.bool()[:, None, None, :]
        for layer in self.transformer_encoder:
            x = layer(x, mask)
        return self.layer_norm(x)


class NeoBERTLMHead(PreTrainedModel):
    config_class = NeoBERTConfig
    base_model_prefix = "model"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = NeoBERT(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> MaskedLMOutput:
        return MaskedLMOutput(logits=self.decoder(self.model(input_ids, attention_mask)))


def register() -> None:
    """Let the Auto classes of transformers find this class by its ``model_type``."""
    AutoConfig.register("neobert", NeoBERTConfig, exist_ok=True)
    AutoModelForMaskedLM.register(NeoBERTConfig, NeoBERTLMHead, exist_ok=True)
