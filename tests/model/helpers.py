"""Small models and ragged packed batches for the tests of this folder."""

import torch
from torch import Tensor

from maskwright.config import from_mapping
from maskwright.model.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig, ModelConfig, resolve_config
from maskwright.model.pretraining import MaskedLanguageModel

VOCAB = 64
# Three rows of 12: ragged segments, a row with one segment, a tail of padding as a segment.
RAGGED_ROWS = ((5, 4, 3), (12,), (1, 7, 4))


def tiny_config(**fields: object) -> EncoderConfig:
    """An encoder of width 32 with three layers; `fields` as in a recipe's section ``model``."""
    sizes: dict[str, object] = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    config = from_mapping(ModelConfig, {**sizes, **fields})
    return resolve_config(config, vocab_size=VOCAB, max_seq_length=16)


def tiny_model(**fields: object) -> MaskedLanguageModel:
    """A model with every parameter random, norms and biases too, in evaluation mode."""
    model = MaskedLanguageModel(tiny_config(**fields))
    randomise(model, seed=0)
    return model.eval()


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    """Draws every parameter, so that no bias is 0 and no norm is 1 in a comparison."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_norm = name.lower().endswith("norm.weight")
        parameter.normal_(1.0 if is_norm else 0.0, 0.15, generator=generator)


def pack(rows: tuple[tuple[int, ...], ...]) -> AttentionContext:
    """The context of rows that hold segments of the given lengths, equal in sum."""
    positions, segment_ids, ends = [], [], [0]
    for row in rows:
        for number, length in enumerate(row):
            positions += range(length)
            segment_ids += [number] * length
            ends.append(ends[-1] + length)
    return AttentionContext(
        positions=torch.tensor(positions),
        segment_ids=torch.tensor(segment_ids, dtype=torch.int32),
        cu_seqlens=torch.tensor(ends, dtype=torch.int32),
        max_seqlen=sum(rows[0]),
        row_length=sum(rows[0]),
    )


def random_ids(count: int, seed: int = 0) -> Tensor:
    """Ordinary token ids, [count]."""
    return torch.randint(5, VOCAB, (count,), generator=torch.Generator().manual_seed(seed))
