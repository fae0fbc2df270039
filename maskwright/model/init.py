"""Random initial weights, a pure function of (architecture, seed) on every device.

Runs that begin with another model take its weights in `maskwright.pretraining.init_from`.
"""

import math

import torch
from torch import Tensor, nn

from maskwright.model.config import EncoderConfig
from maskwright.model.layers import Embeddings
from maskwright.model.masked_lm import PAIR_HEAD, Network, SentencePairHead


@torch.no_grad()
def initialize(model: Network, seed: int) -> None:
    """Draw all weights, in the order of ``named_parameters``, from one generator on the CPU.

    Matrices and embeddings are normal with deviation ``initializer_range`` (truncated if
    ``initializer_cutoff_factor`` is not 0), except the output projections of attention and MLP
    (``init_output``), the zero row of the padding token, and the deltas of shared embeddings,
    which are 0. Biases are 0, norms 1, that of the embeddings ``init_embedding_norm``.
    """
    _draw_parameters(model, model.config, seed)
    for module in model.modules():
        if isinstance(module, Embeddings):
            module.word.weight[model.config.pad_token_id] = 0


@torch.no_grad()
def draw_pair_head(config: EncoderConfig, seed: int) -> dict[str, Tensor]:
    """Return a new head for pairs by parameter name, for a model that was trained without one.

    `maskwright.pretraining.init_from` adds it.
    """
    head = SentencePairHead(config)
    _draw_parameters(head, config, seed)
    return {f"{PAIR_HEAD}{name}": p.detach() for name, p in head.named_parameters()}


def _draw_parameters(model: nn.Module, config: EncoderConfig, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            parameter.fill_(_initial_constant(config, name))
            continue
        deviation = _deviation(config, name)
        if deviation == 0:
            parameter.zero_()
        else:
            parameter.copy_(_draw(parameter.shape, deviation, config, generator))


def _initial_constant(config: EncoderConfig, name: str) -> float:
    if name.endswith("embeddings.norm.weight"):
        return config.init_embedding_norm
    return 1.0 if name.endswith("norm.weight") else 0.0


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
