"""From token ids to vectors. T tokens, E width of the embeddings."""

from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.model.dropout import Dropout
from maskwright.model.norms import build_norm
from maskwright.model.positions import sinusoids


class Embeddings(nn.Module):
    """``dropout(norm(word + position + token type))``, each part as configured: [T] -> [T, E]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.word = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        learned, types = config.positions == "learned", config.type_vocab_size
        self.position = nn.Embedding(config.max_position_embeddings, size) if learned else None
        self.token_type = nn.Embedding(types, size) if types else None
        self.sinusoidal = config.positions == "sinusoidal"
        self.norm = build_norm(config, size) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.embedding_dropout)

    def forward(
        self, input_ids: Tensor, positions: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        x = self.word(input_ids)
        if self.token_type is not None:
            types = self.token_type.weight[0]  # of all tokens, unless somebody says otherwise
            x = x + (types if token_type_ids is None else self.token_type(token_type_ids))
        if self.position is not None:
            x = x + self.position(positions)
        if self.sinusoidal:
            x = x + sinusoids(positions, x.shape[-1]).to(x.dtype)
        return self.dropout(self.norm(x))
