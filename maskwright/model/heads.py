"""Heads on top of the encoder.

M masked tokens, P pairs of texts, D width, E width of the embeddings, V vocabulary, C candidates.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
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
        logits = F.linear(vectors, weight[ids], None if bias is None else bias[ids])
        logits = logits.float() + offsets
        logits = logits.masked_fill(labels[:, None] == ids, -torch.inf)
        own = (vectors.float() * weight[labels].float()).sum(-1)
        own = own if bias is None else own + bias[labels].float()
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
