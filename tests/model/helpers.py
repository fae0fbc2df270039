"""Small models and ragged packed batches for the tests of this folder."""

from dataclasses import replace

from maskwright.config import from_mapping
from maskwright.model.config import EncoderConfig, ModelConfig, resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.twins import VOCAB_SIZE, randomize
from tests.twins import pack as pack
from tests.twins import random_ids as random_ids

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
    return resolve_config(config, vocab_size=VOCAB_SIZE, max_seq_length=16)


def tiny_model(**fields: object) -> MaskedLanguageModel:
    """A model with every parameter random, norms and biases too, in evaluation mode."""
    return _randomised(tiny_config(**fields))


def with_pair_head(**fields: object) -> MaskedLanguageModel:
    """The same with a head that judges pairs of texts."""
    return _randomised(replace(tiny_config(**fields), sentence_pair_head=True))


def _randomised(config: EncoderConfig) -> MaskedLanguageModel:
    model = MaskedLanguageModel(config)
    randomize(model, seed=0)
    return model.eval()
