"""Models small enough to be trained inside a test."""

from maskwright.config import from_mapping
from maskwright.model.config import EncoderConfig, ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.helpers import CLS, MASK, PAD, SEP, VOCAB_SIZE


def small_config(max_seq_length: int = 16, **fields: object) -> EncoderConfig:
    """Two layers of width 16 over the vocabulary of the synthetic corpus."""
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    return resolve_config(
        from_mapping(ModelConfig, {**sizes, **fields}),
        vocab_size=VOCAB_SIZE,
        max_seq_length=max_seq_length,
        pad_token_id=PAD,
        cls_token_id=CLS,
        sep_token_id=SEP,
        mask_token_id=MASK,
    )


def small_model(seed: int = 0, max_seq_length: int = 16, **fields: object) -> MaskedLanguageModel:
    model = MaskedLanguageModel(small_config(max_seq_length, **fields))
    initialize(model, seed)
    return model
