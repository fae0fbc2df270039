"""A classifier over a pretrained encoder, and the rates at which its layers learn."""

import dataclasses
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from maskwright.errors import ConfigError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.model.classifier import Classifier
from maskwright.model.config import EncoderConfig, Level, Pooling
from maskwright.model.electra import Discriminator
from maskwright.model.heads import HeadTransform
from maskwright.model.init import initialize
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.model_folder.families import native_classifier

Pretrained = MaskedLanguageModel | Discriminator | Classifier


def build_classifier(
    pretrained: Pretrained, config: FinetuneConfig, level: Level, num_labels: int, seed: int
) -> Classifier:
    """The encoder of `pretrained`, copied, under a new head whose output is drawn from `seed`.

    What a family's class takes from pretraining besides the encoder is taken, too: BERT's pooler,
    which learned to judge pairs, and ModernBERT's layer before the decoder. A classifier of another
    task gives on its head but for the output.
    """
    dropout = config.dropout
    architecture = dataclasses.replace(
        pretrained.config,
        sentence_pair_head=False,
        attention_dropout=dropout,
        hidden_dropout=dropout,
        embedding_dropout=dropout,
    )
    native = native_classifier(architecture, level)[0].head
    pooling = config.pooling or "mean"
    pooling = pooling if pooling in native.poolings else "cls"
    head = native.build_config(architecture, level, num_labels, pooling, dropout)
    model = Classifier(architecture, head)
    initialize(model, seed)
    model.encoder.load_state_dict(pretrained.encoder.state_dict())
    for ours, theirs in _find_layers(pretrained, model):
        ours.load_state_dict(theirs.state_dict())
    return model


def check_pooling(architecture: EncoderConfig, level: Level, pooling: Pooling | None) -> None:
    """Raises ConfigError if the class of such an encoder has not the pooling that is asked for."""
    (family, native), _ = native_classifier(architecture, level)
    known = tuple(native.poolings) or ("cls",) * (level == "text")
    if pooling is None or pooling in known:
        return
    name = family.architecture
    has = f"It has {' and '.join(known)}" if known else "It labels each word by its first token"
    raise ConfigError("pooling", pooling, f"is none that {name} has", f"{has}: leave it out.")


def _find_layers(pretrained: Pretrained, model: Classifier) -> Iterator[tuple[nn.Module, Any]]:
    if not model.head_config.activation:
        return
    if isinstance(pretrained, Classifier) and pretrained.head_config.activation:
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


def group_parameters(model: nn.Module, config: FinetuneConfig) -> list[dict[str, Any]]:
    """Parameters by layer, the learning rate decaying from the head down to the embeddings.

    Clark et al., "ELECTRA", 2020: ``rate * layer_decay ** (layers between it and the head)``.
    Norms and biases are not decayed towards 0.
    """
    rate, decay = config.learning_rate, config.layer_decay
    assert rate is not None, "not settled"
    assert decay is not None, "not settled"
    blocks = [name for name, _ in model.named_modules() if name.startswith("encoder.blocks.")]
    num_layers = 1 + max(int(name.split(".")[2]) for name in blocks)
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
    """0 for embeddings, 1 for the first block, one more than the last for all above it."""
    parts = name.split(".")
    if parts[:2] == ["encoder", "blocks"]:
        return 1 + int(parts[2])
    below = parts[0] == "encoder" and parts[1] in ("embeddings", "project")
    return 0 if below else num_layers + 1


@contextmanager
def rescaled_output(model: Classifier, mean: float, deviation: float) -> Generator[None]:
    """Within it, a model that learned to say ``(y - mean) / deviation`` says y."""
    output = model.head.output
    weight, bias = output.weight.data, output.bias.data
    output.weight.data, output.bias.data = weight * deviation, bias * deviation + mean
    try:
        yield
    finally:
        output.weight.data, output.bias.data = weight, bias
