"""The masked language model and its heads.

T tokens, M masked tokens, P pairs, D width, E width of the embeddings, V vocabulary, C candidates.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.fused import look_up
from maskwright.model.layers import ACTIVATIONS, build_norm


class HeadTransform(nn.Module):
    """``norm(act(dense(x)))``, the layers before BERT's decoder: [M, D] -> [M, E]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_width
        self.dense = nn.Linear(config.hidden_size, width, bias=config.head_bias)
        self.activate = ACTIVATIONS[config.head_act]
        self.norm = build_norm(config, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activate(self.dense(x)))


class TwoLayerTransform(nn.Module):
    """``act(output(act(input(x))))``, the layers before UltraBERT's decoder: [M, D] -> [M, E]."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.prediction_head_size, config.head_bias
        self.input = nn.Linear(size, inner, bias=bias)
        self.output = nn.Linear(inner, config.embedding_width, bias=bias)
        self.activate = ACTIVATIONS[config.head_act]

    def forward(self, x: Tensor) -> Tensor:
        return self.activate(self.output(self.activate(self.input(x))))


class MLMHead(nn.Module):
    """``decoder(transform(x))``, the logits of the vocabulary: [M, D] -> [M, V].

    Devlin et al., "BERT", 2019. The weight of a tied decoder is the parameter of the word
    embeddings, so it is counted, trained and saved once (Press and Wolf, "Using the Output
    Embedding to Improve Language Models", 2017).
    """

    def __init__(self, config: EncoderConfig, word_embeddings: nn.Embedding) -> None:
        super().__init__()
        if config.prediction_head_size:
            self.transform = TwoLayerTransform(config)
        else:
            self.transform = HeadTransform(config) if config.head_transform else nn.Identity()
        self.decoder = nn.Linear(
            config.embedding_width, config.vocab_size, bias=config.decoder_bias
        )
        if config.tie_word_embeddings:
            self.decoder.weight = word_embeddings.weight

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden))

    def choose(self, hidden: Tensor, ids: Tensor, offsets: Tensor, labels: Tensor) -> Tensor:
        """Return the logits [M, C + 1] of the candidates and, last, of each label [M].

        Args:
            ids: [C] int64, the distinct candidates; a candidate equal to the label is ignored.
            offsets: [C] float32, added to the logits of candidates, not to those of labels.
            labels: [M] int64.
        """
        vectors, weight, bias = self.transform(hidden), self.decoder.weight, self.decoder.bias
        chosen = None if bias is None else look_up(bias[:, None], ids)[:, 0]
        logits = F.linear(vectors, look_up(weight, ids), chosen)
        logits = logits.float() + offsets
        logits = logits.masked_fill(labels[:, None] == ids, -torch.inf)
        own = (vectors.float() * look_up(weight, labels).float()).sum(-1)
        own = own if bias is None else own + look_up(bias[:, None], labels)[:, 0].float()
        return torch.cat([logits, own[:, None]], dim=1)


class SentencePairHead(nn.Module):
    """``classifier(tanh(pooler(x)))`` on the vectors of [CLS]: [P, D] -> [P, 2].

    Devlin et al., "BERT", 2019. Class 0: the second text of a pair follows the first; class 1: it
    does not.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(hidden)))


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
