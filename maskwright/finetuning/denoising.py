"""The loss of TSDAE: a text is rebuilt from the vector of the few tokens that are left of it.

Wang et al., "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning", 2021. R texts, T tokens, D width, V vocabulary.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.finetuning.batches import InputBatch
from maskwright.model.attention import SelfAttention
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.tokenizer.template import ModelInput

_DELETED = 0.6  # share of the tokens, the best of the paper


class Decoder(nn.Module):
    """A causal decoder that attends to one vector per text; it is not part of the trained model.

    Its blocks and embeddings are those of the encoder, as in the paper. Attention to a single
    vector has the weight 1 whatever the query is, so it is a linear map of that vector; each block
    adds its own map, which starts at zero, to the output of its self-attention (in a post-norm
    block of the paper, a norm separates the two). The head starts as a copy of the model's.
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
        """Return the mean cross-entropy of each token after the first, given those before it.

        Args:
            batch: the whole texts.
            vectors: [R, D].
        """
        context = batch.context
        layers = [one for one in model.encoder.modules() if isinstance(one, SelfAttention)]
        with ExitStack() as hooks:
            for attention, linear in zip(layers, self.maps, strict=True):
                hook = partial(_add, linear(vectors).repeat_interleave(context.row_length, 0))
                hooks.callback(attention.register_forward_hook(hook).remove)
            hidden = model.encoder(batch.input_ids, replace(context, is_causal=True))
        predicted = torch.nonzero((context.segment_ids == 0) & (context.positions > 0))[:, 0]
        logits = self.head(hidden[predicted - 1]).float()
        # A text may be a single token, of which nothing is to be predicted.
        loss = F.cross_entropy(logits, batch.input_ids[predicted], reduction="sum")
        return loss / max(1, len(predicted))


def _add(more: Tensor, _attention: nn.Module, _inputs: object, attended: Tensor) -> Tensor:
    return attended + more


def delete_tokens(inputs: Sequence[ModelInput], num_added: int) -> list[ModelInput]:
    """Return the inputs with 40 % of their tokens, drawn by torch's generator, at least one each.

    Args:
        num_added: the number of special tokens of an input, which are kept.
    """
    return [_delete(one, num_added) for one in inputs]


def _delete(one: ModelInput, num_added: int) -> ModelInput:
    end = len(one.ids) - (num_added - one.first)
    count = end - one.first
    drawn = torch.randperm(count)[: max(1, round(count * (1 - _DELETED)))] + one.first
    kept = [*range(one.first), *sorted(drawn.tolist()), *range(end, len(one.ids))]
    return ModelInput([one.ids[n] for n in kept], [one.type_ids[n] for n in kept], one.first)
