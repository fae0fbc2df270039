"""The classifier on a pretrained encoder: construction, learning rates by layer, logits."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskwright.config import Plain
from maskwright.console import Pulse
from maskwright.errors import ConfigError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import Examples
from maskwright.inference.text_model import plan_batches
from maskwright.model.classifier import Classifier
from maskwright.model.config import EncoderConfig, Level, Pooling
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.model.masked_lm import EncoderModel, HeadTransform, MaskedLanguageModel
from maskwright.model_folder.families import native_classifier
from maskwright.optim.build import Optimizers
from maskwright.optim.eager import AdamW, EagerOptimizer
from maskwright.optim.groups import divide_parameters
from maskwright.optim.muon import Muon
from maskwright.train.config import Precision
from maskwright.train.device import autocast


def build_classifier(
    pretrained: EncoderModel, config: FinetuneConfig, level: Level, num_labels: int, seed: int
) -> Classifier:
    """Return a copy of the encoder of `pretrained` with a new head, initialized with `seed`.

    Other pretrained layers that the family's class uses are copied too: BERT's pooler, trained on
    sentence pairs, and ModernBERT's layer before the decoder. From a classifier of another task,
    the head is copied except for its output layer.
    """
    dropout = config.dropout
    # Dropout makes equal tokens differ, so that texts would match better than in training later.
    within = 0.0 if config.pooling == "bi" else dropout
    architecture = with_dropout(replace(pretrained.config, sentence_pair_head=False), within)
    native = native_classifier(architecture, level, config.pooling)[0].head
    pooling = config.pooling or "mean"
    pooling = pooling if pooling in native.poolings else "cls"
    head = native.build_config(architecture, level, num_labels, pooling, dropout)
    model = Classifier(architecture, head)
    initialize(model, seed)
    model.encoder.load_state_dict(pretrained.encoder.state_dict())
    for ours, theirs in _find_layers(pretrained, model):
        ours.load_state_dict(theirs.state_dict())
    return model


def with_dropout(config: EncoderConfig, rate: float) -> EncoderConfig:
    """Return the architecture with dropout `rate`."""
    return replace(config, attention_dropout=rate, hidden_dropout=rate, embedding_dropout=rate)


def check_pooling(architecture: EncoderConfig, level: Level, pooling: Pooling | None) -> None:
    """Raise ConfigError unless the encoder's family supports the pooling."""
    (family, native), _ = native_classifier(architecture, level, pooling)
    known = tuple(native.poolings) or ("cls",) * (level == "text")
    if pooling is None or pooling in known:
        return
    has = f"It has {' and '.join(known)}" if known else "It labels each word by its first token"
    rule = f"is not supported by {family.architecture}"
    raise ConfigError("pooling", pooling, rule, f"{has}. Remove the setting.")


def _find_layers(pretrained: EncoderModel, model: Classifier) -> Iterator[tuple[nn.Module, Any]]:
    if not model.head_config.activation:
        return
    if (
        isinstance(pretrained, Classifier)
        and pretrained.head_config.activation
        and pretrained.head.dense.weight.shape == model.head.dense.weight.shape
    ):
        yield model.head.dense, pretrained.head.dense
        yield model.head.norm, pretrained.head.norm
    if not isinstance(pretrained, MaskedLanguageModel):
        return
    transform = pretrained.head.transform
    if model.head_config.norm and isinstance(transform, HeadTransform):
        yield model.head.dense, transform.dense
        yield model.head.norm, transform.norm
    elif pretrained.pair_head is not None and model.head_config.activation == "tanh":
        yield model.head.dense, pretrained.pair_head.pooler


def build_optimizers(model: nn.Module, config: FinetuneConfig, device: torch.device) -> Optimizers:
    """Return AdamW for all parameters; or Muon for the hidden matrices and AdamW for the others."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    fused = device.type in ("cpu", "cuda")
    hidden = {*divide_parameters(names).hidden} if config.optimizer == "muon" else set[Tensor]()
    stacked, optimizers = count_stacked_matrices(model), list[EagerOptimizer]()
    others: list[Plain] = []
    for group in group_parameters(model, config):
        matrices = [one for one in group["params"] if one in hidden]
        rest = [one for one in group["params"] if one not in hidden]
        if rest:
            others.append({**group, "params": rest})
        if matrices:  # one optimizer for each rate
            assert config.learning_rate is not None
            counts = [stacked.get(names[one], 1) for one in matrices]
            rate = config.muon_learning_rate * group["lr"] / config.learning_rate
            build = partial(Muon, momentum=0.95, num_steps=5, weight_decay=config.weight_decay)
            optimizers.append(build(matrices, counts, lr=rate))
    return Optimizers([AdamW(others, fused=fused), *optimizers], names)


def group_parameters(model: nn.Module, config: FinetuneConfig) -> list[dict[str, Any]]:
    """Return parameter groups with learning rates that decay from the head to the embeddings.

    Clark et al., "ELECTRA", 2020: ``rate * layer_decay ** (distance from the head in layers)``.
    Norms and biases have no weight decay.
    """
    rate, decay = config.learning_rate, config.layer_decay
    assert rate is not None, "the config is not resolved"
    assert decay is not None, "the config is not resolved"
    names = [name for name, _ in model.named_parameters()]
    num_layers = 1 + max(int(n.split(".")[2]) for n in names if n.startswith("encoder.blocks."))
    groups: dict[tuple[int, bool], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        depth = _depth(name, num_layers)
        groups.setdefault((depth, parameter.ndim >= 2), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": rate * decay ** (num_layers + 1 - depth),
            "weight_decay": config.weight_decay if is_matrix else 0.0,
        }
        for (depth, is_matrix), parameters in groups.items()
    ]


def _depth(name: str, num_layers: int) -> int:
    """Return 0 for embeddings, 1 for the first block, ``num_layers + 1`` for the head."""
    parts = name.split(".")
    if parts[:2] == ["encoder", "blocks"]:
        return 1 + int(parts[2])
    below = parts[0] == "encoder" and parts[1] in ("embeddings", "project", "relative")
    return 0 if below else num_layers + 1


@contextmanager
def rescaled_output(model: Classifier, mean: float, deviation: float) -> Generator[None]:
    """Make a model that was trained on ``(y - mean) / deviation`` predict y in this context."""
    output = model.head.output
    weight, bias = output.weight.data, output.bias.data
    output.weight.data, output.bias.data = weight * deviation, bias * deviation + mean
    try:
        yield
    finally:
        output.weight.data, output.bias.data = weight, bias


def batch_tokens_on(device: torch.device) -> int:
    """Return the number of tokens in a scoring batch on a device."""
    return 2048 if device.type == "cpu" else 32_768


@torch.inference_mode()
def compute_logits(
    model: Classifier,
    examples: Examples,
    pad_id: int,
    precision: Precision,
    pulse: Pulse | None = None,
) -> list[NDArray[np.float32]]:
    """Return the logits of each example, in order: [K] for a text, [words, K] for a sentence."""
    num_scored, pulse = 0, pulse or Pulse()
    device = next(model.parameters()).device
    if model.head_config.num_labels == 1:  # a number; bf16 has 8 bits, so that 2003 is 2000
        precision = "fp32"
    model.eval()
    found: list[Any] = [None] * len(examples)
    for numbers in plan_batches(examples.lengths, batch_tokens_on(device)):
        batch = examples.collate(numbers, pad_id, device)
        with autocast(precision, device):
            logits = model(
                batch.input_ids, batch.context, batch.token_type_ids, batch.output_positions
            )
        if examples.positions is not None:
            logits = logits.split([len(examples.positions[number]) for number in numbers])
        for number, part in zip(numbers, logits, strict=True):
            found[number] = part.float().cpu().numpy()
        num_scored += len(numbers)
        pulse.beat(f"  {num_scored:,} of {len(examples):,} examples scored")
    return found
