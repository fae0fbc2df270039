"""ELECTRA: a discriminator that detects replaced tokens, and the generator that replaces them.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020;
He et al., "DeBERTaV3: Improving DeBERTa using ELECTRA-Style Pre-Training with
Gradient-Disentangled Embedding Sharing", 2021.
T tokens, M masked tokens, D width, V vocabulary.
"""

import dataclasses

import torch
from torch import Tensor, nn
from torch.func import functional_call

from maskwright.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig
from maskwright.model.layers import ACTIVATIONS
from maskwright.model.masked_lm import EncoderModel, MaskedLanguageModel, Network


class ReplacedTokenHead(nn.Module):
    """``output(act(dense(x)))``, the log odds that a token is replaced: [T, D] -> [T]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activate = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.activate(self.dense(hidden))).squeeze(-1)


class Discriminator(EncoderModel):
    """``head(encoder(input_ids))``, the log odds that each token is replaced: [T] -> [T]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.head = ReplacedTokenHead(config)

    def forward(
        self, input_ids: Tensor, context: AttentionContext, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return [T], the log odds that each token is replaced.

        Args:
            input_ids: [T] int64, with replaced tokens and without [MASK].
            context: the boundaries of the segments in [T].
            token_type_ids: [T] int64, or None for type 0 everywhere.
        """
        return self.head(self.encoder(input_ids, context, token_type_ids))


class GeneratorAndDiscriminator(Network):
    """Both models, with shared embeddings.

    Word, position and token type embeddings and their norm are shared, as in the authors' code; the
    projections to the two widths are not. The shared parameters have the names of the
    discriminator.

    With `disentangled` embeddings, only the generator's loss trains the shared tables. Those of the
    discriminator are ``stop_gradient(shared) + delta`` with its own deltas, which begin at zero,
    and the norms are separate (He et al., "DeBERTaV3", section 3.3).
    """

    def __init__(
        self, config: EncoderConfig, generator_config: EncoderConfig, disentangled: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.discriminator = Discriminator(config)
        self.generator = MaskedLanguageModel(generator_config)
        self.deltas = nn.ParameterDict()
        embeddings = self.discriminator.encoder.embeddings
        if disentangled:
            for name, table in embeddings.named_children():
                if isinstance(table, nn.Embedding):
                    setattr(self.generator.encoder.embeddings, name, table)
                    self.deltas[name] = nn.Parameter(torch.zeros_like(table.weight))
        else:
            self.generator.encoder.embeddings = embeddings
        if generator_config.tie_word_embeddings:
            self.generator.head.decoder.weight = embeddings.word.weight

    def discriminate(self, input_ids: Tensor, context: AttentionContext) -> Tensor:
        """Return [T], the log odds that each token is replaced."""
        return functional_call(self.discriminator, self._sum_tables(), (input_ids, context))

    def build_discriminator(self) -> Discriminator:
        """Return the discriminator; if it has deltas, with the sums as its own embeddings."""
        if not self.deltas:
            return self.discriminator
        with torch.device("meta"):
            model = Discriminator(self.config)
        return model.assign({**self.discriminator.state_dict(), **self._sum_tables()})

    def _sum_tables(self) -> dict[str, Tensor]:
        tables = self.discriminator.encoder.embeddings
        return {
            f"encoder.embeddings.{name}.weight": tables.get_parameter(f"{name}.weight").detach()
            + delta
            for name, delta in self.deltas.items()
        }


def narrow_config(config: EncoderConfig, share: float) -> EncoderConfig:
    """Return the architecture of a generator: same depth and embeddings, `share` of the width.

    The number of heads is chosen so that the head size is even and nearly the same.
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
