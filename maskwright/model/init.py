"""Initial weights: random, from a deeper model, or computed from those of another vocabulary.

Random weights are a pure function of (architecture, seed) on every device.

The row of a new token is the mean of the rows of the tokens that previously encoded it. Rows that
only pad the vocabulary to a round size are the mean of all rows: Hewitt, "Initializing New Word
Embeddings for Pretrained Language Models", 2021, shows that such a row takes at most 1/V of the
probability of the other tokens, while a random row may take nearly all of it.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.model.layers import Embeddings
from maskwright.model.masked_lm import PAIR_HEAD, EncoderModel, Network, SentencePairHead


@torch.no_grad()
def initialize(model: Network, seed: int) -> None:
    """Draw all weights, in the order of ``named_parameters``, from one generator on the CPU.

    Matrices and embeddings are normal with deviation ``initializer_range`` (truncated if
    ``initializer_cutoff_factor`` is not 0), except the output projections of attention and MLP
    (``init_output``), the zero row of the padding token, and the deltas of shared embeddings,
    which are 0. Biases are 0, norms 1.
    """
    _draw_parameters(model, model.config, seed)
    for module in model.modules():
        if isinstance(module, Embeddings):
            module.word.weight[model.config.pad_token_id] = 0


@torch.no_grad()
def draw_pair_head(config: EncoderConfig, seed: int) -> dict[str, Tensor]:
    """Return a new head for pairs by parameter name, for a model that was trained without one."""
    head = SentencePairHead(config)
    _draw_parameters(head, config, seed)
    return {f"{PAIR_HEAD}{name}": p.detach() for name, p in head.named_parameters()}


def _draw_parameters(model: nn.Module, config: EncoderConfig, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            continue
        deviation = _deviation(config, name)
        if deviation == 0:
            parameter.zero_()
        else:
            parameter.copy_(_draw(parameter.shape, deviation, config, generator))


def _deviation(config: EncoderConfig, name: str) -> float:
    if name.startswith("deltas."):
        return 0.0
    is_output = name.endswith(("attention.output.weight", "mlp.output.weight"))
    if not is_output or config.init_output == "normal":
        return config.initializer_range
    if config.init_output == "zero":
        return 0.0
    # Radford et al. 2019: the sum of 2 x layers residual branches keeps the scale of one branch.
    return config.initializer_range / math.sqrt(2 * config.num_hidden_layers)


def _draw(
    shape: torch.Size, deviation: float, config: EncoderConfig, generator: torch.Generator
) -> Tensor:
    drawn = torch.empty(shape)
    if config.initializer_cutoff_factor == 0:
        return drawn.normal_(0.0, deviation, generator=generator)
    cutoff = config.initializer_cutoff_factor * deviation
    return nn.init.trunc_normal_(drawn, 0.0, deviation, -cutoff, cutoff, generator=generator)


def spread_layers(count: int, total: int) -> list[int]:
    """Return `count` of `total` layers, evenly spaced from the first to the last.

    6 of 12 are 0, 2, 4, 7, 9, 11, as in DistilBERT (Sanh et al. 2019).
    """
    return [round(layer * (total - 1) / max(1, count - 1)) for layer in range(count)]


def take_layers(model: EncoderModel, teacher: EncoderModel) -> list[int]:
    """Copy the teacher's weights, with the layers that `spread_layers` chooses; return those.

    Nothing is copied and the list is empty if any size but the number of layers differs.
    """
    blocks = teacher.encoder.blocks
    layers = spread_layers(model.config.num_hidden_layers, len(blocks))
    unused = ("encoder.blocks.", PAIR_HEAD)
    state = {n: t for n, t in teacher.state_dict().items() if not n.startswith(unused)}
    for number, layer in enumerate(layers):
        weights = blocks[layer].state_dict().items()
        state |= {f"encoder.blocks.{number}.{name}": tensor for name, tensor in weights}
    ours = model.state_dict()
    if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in ours.items()}:
        return []
    model.load_state_dict(state)
    return layers


# [V, D] or [V] tensors; the weight of a tied decoder is not listed separately.
_TABLES = ("encoder.embeddings.word.weight", "head.decoder.weight", "head.decoder.bias")


def grow_vocabulary(
    tensors: Mapping[str, Tensor], vocab_size: int, pieces: Mapping[int, Sequence[int]]
) -> dict[str, Tensor]:
    """Return the tensors of a model by parameter name, for a vocabulary of `vocab_size`.

    Args:
        tensors: the old tensors, which are not modified.
        vocab_size: the new size, at least the old one.
        pieces: for each new id, the old ids that encoded its token.
    """
    grown = dict(tensors)
    for name in _TABLES:
        if name in tensors:
            rows = tensors[name].detach()
            mean = rows.mean(0, keepdim=True)
            grown[name] = torch.cat([rows, mean.expand(vocab_size - len(rows), *rows.shape[1:])])
            for token_id, old_ids in pieces.items():
                grown[name][token_id] = rows[list(old_ids)].mean(0)
    return grown


def mix_vocabulary(
    tensors: Mapping[str, Tensor],
    vocab_size: int,
    sources: Mapping[int, tuple[Sequence[int], Sequence[float]]],
) -> dict[str, Tensor]:
    """Return the tensors of a model by parameter name, for another vocabulary of `vocab_size`.

    Args:
        tensors: the old tensors, which are not modified.
        sources: for each new id, old ids and the weights of their rows in a sum; all other rows
            become the mean of the old rows.
    """
    mixed = dict(tensors)
    for name in _TABLES:
        if name in tensors:
            rows = tensors[name].detach()
            mixed[name] = rows.mean(0).repeat(vocab_size, *[1] * (rows.dim() - 1))
            for token_id, (old_ids, weights) in sources.items():
                mixed[name][token_id] = torch.tensordot(torch.tensor(weights), rows[old_ids], 1)
    return mixed
