"""TSDAE: an encoder learns vectors from texts alone, by rebuilding each from the vector of a part.

Use it where there are texts and no pairs. Wang et al., "TSDAE", 2021; in sentence-transformers
``DenoisingAutoEncoderLoss``.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.finetuning.examples import InputBatch
from maskwright.model.attention import SelfAttention
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput

_DELETED = 0.6  # share of the tokens of a text, the best of the paper of TSDAE


class TsdaeDecoder(nn.Module):
    """A causal decoder that rebuilds a text from its vector; it is not part of the trained model.

    Wang et al., "TSDAE", 2021. Blocks and embeddings are those of the encoder, as in the paper.
    Attention to a single vector has the weight 1 whatever the query is, so it is a linear map of
    that vector; each block adds its own map, which starts at zero, to the output of its
    self-attention (in a post-norm block of the paper, a norm separates the two). The head starts as
    a copy of the model's.
    """

    def __init__(self, model: MaskedLanguageModel) -> None:
        super().__init__()
        size, self.head = model.config.hidden_size, deepcopy(model.head)
        if model.config.tie_word_embeddings:
            self.head.decoder.weight = model.encoder.embeddings.word.weight
        self.maps = nn.ModuleList(nn.Linear(size, size) for _ in model.encoder.blocks)
        for parameter in self.maps.parameters():
            nn.init.zeros_(parameter)
        self.to(model.encoder.embeddings.word.weight.device)

    def forward(self, model: MaskedLanguageModel, batch: InputBatch, vectors: Tensor) -> Tensor:
        """Return the mean cross-entropy of each token of whole texts after the first, given those
        before it and the vectors [R, D].
        """
        context = batch.context
        layers = [one for one in model.encoder.modules() if isinstance(one, SelfAttention)]
        with ExitStack() as hooks:
            for attention, linear in zip(layers, self.maps, strict=True):
                more = linear(vectors).repeat_interleave(context.row_length, 0)
                hook = attention.register_forward_hook(lambda _, __, out, more=more: out + more)
                hooks.callback(hook.remove)
            hidden = model.encoder(batch.input_ids, replace(context, is_causal=True))
        predicted = torch.nonzero((context.segment_ids == 0) & (context.positions > 0))[:, 0]
        logits = self.head(hidden.index_select(0, predicted - 1)).float()
        # A text may be a single token, of which nothing is to be predicted.
        loss = F.cross_entropy(logits, batch.input_ids[predicted], reduction="sum")
        return loss / max(1, len(predicted))


def delete_tokens(inputs: Sequence[ModelInput], num_added: int) -> list[ModelInput]:
    """Return the inputs with 40 % of their tokens, drawn by torch's generator, at least one each.

    The `num_added` special tokens of each input are kept.
    """
    left: list[ModelInput] = []
    for one in inputs:
        end = len(one.ids) - (num_added - one.first)
        count = end - one.first
        drawn = torch.randperm(count)[: max(1, round(count * (1 - _DELETED)))] + one.first
        kept = [*range(one.first), *sorted(drawn.tolist()), *range(end, len(one.ids))]
        ids, types = ([each[n] for n in kept] for each in (one.ids, one.type_ids))
        left.append(ModelInput(ids, types, one.first))
    return left
