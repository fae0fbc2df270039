"""An encoder that says of every token whether it was replaced, and the model that replaces.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020.
T tokens, M masked tokens, D width, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from maskwright.model.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.layers import ACTIVATIONS
from maskwright.model.pretraining import MaskedLanguageModel


class ReplacedTokenHead(nn.Module):
    """``output(act(dense(x)))``: [T, D] -> [T], positive where a token looks replaced."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activate = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.activate(self.dense(hidden))).squeeze(-1)


class Discriminator(nn.Module):
    """An encoder and a head that tells replaced tokens from original ones."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = ReplacedTokenHead(config)

    @classmethod
    def from_tensors(cls, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> "Discriminator":
        """Build a discriminator around existing tensors, by parameter name, without copies."""
        with torch.device("meta"):
            model = cls(config)
        model.load_state_dict(tensors, assign=True)
        return model

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """[T], the log odds of each token of having been replaced.

        Args:
            input_ids: [T] int64, of which some may be replaced; none is [MASK].
            context: where the segments of [T] begin and end.
            token_type_ids: [T] int64, or None for type 0 everywhere.
        """
        return self.head(self.encoder(input_ids, context, token_type_ids))


class GeneratorAndDiscriminator(nn.Module):
    """What ELECTRA trains: both models, with one and the same embeddings.

    Words, positions, token types and the norm over their sum are shared, as in the authors' code;
    the projections to the two widths are not. The shared parameters are named once, as the
    discriminator's.
    """

    def __init__(self, config: EncoderConfig, generator_config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator = Discriminator(config)
        self.generator = MaskedLanguageModel(generator_config)
        embeddings = self.discriminator.encoder.embeddings
        self.generator.encoder.embeddings = embeddings
        if generator_config.tie_word_embeddings:
            self.generator.head.decoder.weight = embeddings.word.weight


Network = MaskedLanguageModel | GeneratorAndDiscriminator  # what a run trains


def narrow_config(config: EncoderConfig, share: float) -> EncoderConfig:
    """The generator's architecture: the same depth, `share` of the width, the same embeddings.

    So many fewer heads that they keep their size as far as whole numbers let them, and an even one.
    """
    heads = max(1, round(share * config.num_attention_heads))
    half_head = max(1, round(share * config.hidden_size / heads / 2))
    width = 2 * half_head * heads
    return dataclasses.replace(
        config,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=max(1, round(share * config.intermediate_size)),
        embedding_size=None if width == config.embedding_width else config.embedding_width,
    )
