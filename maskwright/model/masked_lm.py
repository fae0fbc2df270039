"""The masked language model. T tokens, M masked tokens, P pairs, D width, V vocabulary."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.heads import MLMHead, SentencePairHead

TIED = "head.decoder.weight"  # the weight that may be tied to the word embeddings
PAIR_HEAD = "pair_head."  # the prefix of the parameters of the head for pairs


class PretrainingLogits(NamedTuple):
    """Logits of masked tokens [M, V] and of pairs of texts [P, 2]."""

    masked: Tensor
    pairs: Tensor


class WithHidden(NamedTuple):
    """Logits of masked tokens [M, V], and the hidden states [M, D] that predict them."""

    masked: Tensor
    hidden: Tensor


class Network(nn.Module):
    """A module with an `EncoderConfig`."""

    config: EncoderConfig


class EncoderModel(Network):
    """A network with one encoder and any head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config, self.encoder = config, Encoder(config)

    @classmethod
    def from_tensors(cls, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> Self:
        """Return a model whose parameters are existing tensors by name, without a copy."""
        with torch.device("meta"):
            model = cls(config)
        return model.assign(tensors)

    def assign(self, tensors: Mapping[str, Tensor]) -> Self:
        """Replace the parameters by existing tensors, without a copy; return the model."""
        self.load_state_dict(tensors, assign=True)
        return self


class BareEncoder(EncoderModel):
    """An encoder without a head, as embedding models are stored."""


class MaskedLanguageModel(EncoderModel):
    """``head(encoder(input_ids)[masked_positions])``: [T] -> [M, V].

    Devlin et al., "BERT", 2019; a second head classifies pairs of texts, if configured. Only masked
    positions reach the head and the end of the last block: with a vocabulary of 30,000, the logits
    of all positions would be the largest tensor of the model, and at 15 % masks mostly unused.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.head = MLMHead(config, self.encoder.embeddings.word)
        self.pair_head = SentencePairHead(config) if config.sentence_pair_head else None

    def assign(self, tensors: Mapping[str, Tensor]) -> Self:
        if not self.config.tie_word_embeddings:
            return super().assign(tensors)
        super().assign({**tensors, TIED: tensors["encoder.embeddings.word.weight"]})
        self.head.decoder.weight = self.encoder.embeddings.word.weight
        return self

    def predictors(self, positions: Tensor) -> Tensor:
        """Return the positions [M] of the vectors that predict the tokens at `positions` [M].

        With ``next_token_prediction`` these are the previous positions (masked next-token
        prediction, Charpentier and Samuel, "GPT or BERT: why not both?", 2024), so that masked and
        causal rows train the same function.
        """
        return (positions - 1).clamp(min=0) if self.config.next_token_prediction else positions

    def forward(
        self,
        input_ids: Tensor,
        context: AttentionContext,
        masked_positions: Tensor,
        token_type_ids: Tensor | None = None,
        pair_positions: Tensor | None = None,
        candidates: tuple[Tensor, Tensor, Tensor] | None = None,
        with_hidden: bool = False,
    ) -> Tensor | PretrainingLogits | WithHidden:
        """Return the logits [M, V] at `masked_positions`; with `pair_positions`, of both heads.

        With `candidates`, the arguments of `MLMHead.choose`, the token logits are [M, C + 1].

        Args:
            input_ids: [T] int64, masked.
            context: the boundaries of the segments in [T].
            masked_positions: [M] int64, indices into [T]; repeated ones are allowed.
            token_type_ids: [T] int64, or None for type 0 everywhere.
            pair_positions: [P] int64, indices into [T] of the [CLS] of each pair, for a model with
                a ``sentence_pair_head``.
            with_hidden: return the hidden states, too; without `pair_positions`.
        """
        predictors = self.predictors(masked_positions)
        if pair_positions is not None:
            assert self.pair_head is not None, "this model has no head for pairs"
            positions = torch.cat([predictors, pair_positions])
            both = self.encoder(input_ids, context, token_type_ids, positions)
            masked, pairs = both.split([len(masked_positions), len(pair_positions)])
            return PretrainingLogits(self._decode(masked, candidates), self.pair_head(pairs))
        hidden = self.encoder(input_ids, context, token_type_ids, output_positions=predictors)
        logits = self._decode(hidden, candidates)
        return WithHidden(logits, hidden) if with_hidden else logits

    def _decode(self, hidden: Tensor, candidates: tuple[Tensor, Tensor, Tensor] | None) -> Tensor:
        return self.head(hidden) if candidates is None else self.head.choose(hidden, *candidates)
