"""The configuration of a model: the user's, and the complete one of the modules.

`ModelConfig` is the section ``model`` of a recipe: a preset, sizes, and structural fields, where
``None`` means "as in the preset". `resolve_config` converts it to an `EncoderConfig`, which is
complete and the only configuration of the modules. `to_model_config` is the inverse, for the
configuration of a run that begins with an existing model. `HeadConfig` is the head of a classifier.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from maskwright.config import MAX_VOCAB_SIZE, Plain, setting
from maskwright.errors import ConfigError
from maskwright.model.presets import FOLLOWS, PRESETS, ModelType, Preset

Activation = Literal["gelu", "gelu_pytorch_tanh", "relu", "relu2", "silu"]
NormKind = Literal["layernorm", "rmsnorm"]
NormPosition = Literal["pre", "post"]
Positions = Literal["learned", "sinusoidal", "rotary", "relative"]
InitOutput = Literal["normal", "scaled", "zero"]
AttentionBackend = Literal["auto", "reference", "products", "sdpa", "varlen"]
LayerType = Literal["full_attention", "sliding_attention"]

# The head of a classifier (`HeadConfig`), which fine-tuning adds; no run of pretraining has one.
Level = Literal["text", "token", "span"]
Pooling = Literal["cls", "mean", "late", "bi"]
HeadActivation = Literal["tanh", "gelu", "gelu_pytorch_tanh", "relu", "silu"]
# transformers' names for one of several labels, any number of labels, and a number.
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]

# The folder of the generator, the second model in a run of ELECTRA pretraining.
GENERATOR = "generator"
# Limits far above published models, so that a typo or a hostile file cannot exhaust memory.
MAX_SIZES = {
    "num_hidden_layers": 1000,
    "vocab_size": MAX_VOCAB_SIZE,
    "hidden_size": 1 << 17,
    "embedding_size": 1 << 17,
    "num_attention_heads": 1 << 17,
    "intermediate_size": 1 << 20,
    "prediction_head_size": 1 << 20,
    "max_position_embeddings": 1 << 24,
    "position_buckets": 1 << 16,
    "type_vocab_size": 1 << 16,
    "local_attention": 1 << 24,
    "global_attn_every_n_layers": 1000,
}


def check_sizes(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if a size is too large."""
    for name, most in MAX_SIZES.items():
        value = values.get(name)
        if value is not None and value > most:
            raise ConfigError(name, value, f"must be at most {most}")


@dataclass(frozen=True)
class ModelConfig:
    """The architecture in a recipe; ``None`` means "as in the preset"."""

    preset: Preset = setting("modernbert", "published architecture to start from")
    model_type: ModelType | None = setting(
        None, "transformers model_type to save as, if several classes fit; none = the preset's"
    )
    vocab_size: int | None = setting(
        None, "rows of the word embeddings; none = the vocabulary size of the tokenizer"
    )
    hidden_size: int = setting(256, "width of the hidden states")
    embedding_size: int | None = setting(
        None, "width of the embeddings if it differs (ELECTRA); none = hidden_size"
    )
    num_hidden_layers: int = setting(6, "number of encoder blocks")
    sizes: tuple[str, ...] = setting(
        (), "width and layers by compute budget: petaFLOP:WIDTHxLAYERS, each from that budget up"
    )
    num_attention_heads: int | None = setting(
        None, "number of attention heads; must divide hidden_size; none = hidden_size / 64"
    )
    intermediate_size: int | None = setting(
        None, "inner width of the MLP; none = 4 x hidden_size, or 8/3 x if gated_mlp is true"
    )
    max_position_embeddings: int | None = setting(
        None, "maximum tokens per input; none = data.max_seq_length"
    )
    hidden_act: Activation | None = setting(None, "activation of the MLP")
    gated_mlp: bool | None = setting(None, "gated MLP: act(a) * b instead of act(a)")
    norm: NormKind | None = setting(None, "type of normalization")
    norm_position: NormPosition | None = setting(
        None, "pre (before attention and MLP) or post (after the residual connection)"
    )
    norm_bias: bool | None = setting(None, "biases in LayerNorm")
    norm_eps: float | None = setting(None, "epsilon of the norms")
    positions: Positions | None = setting(
        None, "type of position encoding; relative is disentangled attention (DeBERTa)"
    )
    position_buckets: int | None = setting(
        None, "relative positions: buckets of distances on each side; half of them are exact"
    )
    rope_theta: float | None = setting(None, "base of the rotary frequencies in global layers")
    local_rope_theta: float | None = setting(None, "base of the rotary frequencies in local layers")
    embedding_norm: bool | None = setting(None, "norm after the sum of embeddings")
    first_attention_norm: bool | None = setting(
        None, "norm before the attention of the first layer (false in ModernBERT)"
    )
    type_vocab_size: int | None = setting(None, "number of token types; 0 = no token types")
    attention_bias: bool | None = setting(None, "biases in the attention projections")
    mlp_bias: bool | None = setting(None, "biases in the MLP")
    mlp_output_bias: bool | None = setting(
        None, "bias in the output layer of the MLP; none = as mlp_bias if that is set"
    )
    qk_norm: bool | None = setting(None, "RMSNorm on queries and keys of each head")
    global_attn_every_n_layers: int | None = setting(
        None, "every n-th layer has global attention, the others local; 1 = all layers global"
    )
    layer_types: tuple[LayerType, ...] = setting(
        (), "full_attention or sliding_attention per layer, instead of global_attn_every_n_layers"
    )
    local_attention: int | None = setting(None, "total window of local attention in tokens")
    tie_word_embeddings: bool | None = setting(None, "tie the decoder to the word embeddings")
    head_transform: bool | None = setting(None, "dense-activation-norm before the decoder")
    prediction_head_size: int | None = setting(
        None, "inner width of a two-layer head (UltraBERT), instead of head_transform; 0 = off"
    )
    head_act: Activation | None = setting(None, "activation of the head")
    head_bias: bool | None = setting(None, "biases in the dense layers of the head")
    decoder_bias: bool | None = setting(None, "bias in the decoder")
    next_token_prediction: bool | None = setting(
        None, "predict a token from the hidden state of the previous position (GPT-BERT)"
    )
    embedding_dropout: float | None = setting(None, "dropout on the embeddings")
    attention_dropout: float | None = setting(None, "dropout on the attention probabilities")
    hidden_dropout: float | None = setting(None, "dropout on the outputs of attention and MLP")
    mlp_dropout: float | None = setting(None, "dropout inside the MLP")
    initializer_range: float | None = setting(None, "standard deviation of initial weights")
    initializer_cutoff_factor: float | None = setting(
        None, "truncate initial weights at this many standard deviations; 0 = no truncation"
    )
    init_output: InitOutput | None = setting(
        None, "initial output projections: normal, scaled by 1/sqrt(2 x layers), or zero"
    )
    init_embedding_norm: float | None = setting(
        None, "initial weights of the norm of the embeddings; small ones let the blocks speak early"
    )
    attention_backend: AttentionBackend = setting("auto", "attention kernel")

    def __post_init__(self) -> None:
        check_sizes(vars(self))
        parse_sizes(self.sizes)
        needed: list[tuple[str, str, Any]] = [
            *((name, "positions", "rotary") for name in ("rope_theta", "local_rope_theta")),
            ("position_buckets", "positions", "relative"),
        ]
        if not _choose(self, "prediction_head_size"):
            needed += [(name, "head_transform", True) for name in ("head_act", "head_bias")]
        for name, needs, value in needed:
            if getattr(self, name) is not None and _choose(self, needs) != value:
                rule = f"has no effect: model.{needs} is {_choose(self, needs)}"
                raise ConfigError(name, getattr(self, name), rule, f"Set it to {value}.")
        every = _choose(self, "global_attn_every_n_layers")
        if every < 1:
            raise ConfigError("global_attn_every_n_layers", every, "must be at least 1")
        if self.layer_types and self.global_attn_every_n_layers is not None:
            rule = "cannot be combined with model.layer_types"
            raise ConfigError("global_attn_every_n_layers", every, rule, "Remove one of the two.")
        _resolve(self, {"vocab_size": 64, "max_position_embeddings": 1})


@dataclass(frozen=True)
class EncoderConfig:
    """A complete architecture; field names are those of `ModelConfig`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    hidden_act: Activation
    gated_mlp: bool
    norm: NormKind
    norm_position: NormPosition
    norm_bias: bool
    norm_eps: float
    positions: Positions
    position_buckets: int
    rope_theta: float
    local_rope_theta: float
    embedding_norm: bool
    first_attention_norm: bool
    type_vocab_size: int
    attention_bias: bool
    mlp_bias: bool
    mlp_output_bias: bool
    qk_norm: bool
    layer_types: tuple[LayerType, ...]
    local_attention: int
    tie_word_embeddings: bool
    head_transform: bool
    prediction_head_size: int
    head_act: Activation
    head_bias: bool
    decoder_bias: bool
    next_token_prediction: bool
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    mlp_dropout: float = 0.0
    initializer_range: float = 0.02
    initializer_cutoff_factor: float = 0.0
    init_output: InitOutput = "normal"
    init_embedding_norm: float = 1.0
    pad_token_id: int = 0
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None
    embedding_size: int | None = None  # None = hidden_size
    sentence_pair_head: bool = False  # a classifier of pairs of texts on [CLS]
    model_type: str | None = None  # the published family to save it as, if several fit
    attention_backend: AttentionBackend = "auto"  # a setting of the run, never saved

    def __post_init__(self) -> None:
        check_sizes(vars(self))
        _check_numbers(self)
        _check_structure(self)

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings and of the input of the decoder."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def window(self, kind: LayerType) -> int | None:
        """Return the attention window of this layer type in tokens per side; None = no limit."""
        return self.local_attention // 2 if kind == "sliding_attention" else None

    def theta(self, kind: LayerType) -> float:
        """Return the base of the rotary frequencies in layers of this type."""
        return self.local_rope_theta if kind == "sliding_attention" else self.rope_theta


@dataclass(frozen=True)
class HeadConfig:
    """The head of a classifier; published families differ in the layers before its output.

    Attributes:
        level: what is labeled: texts, tokens, or the first and the last token of a span.
        num_labels: K; 1 for regression.
        pooling: the vector of a text: that of its first token, the mean over tokens, or (late) the
            mean of the logits over tokens. `bi`: similarities of the two texts of a pair, which are
            encoded separately, in their embeddings and in the last layer.
        activation: the activation of the dense layer before the output; None = no such layer.
        bias: True if that layer has a bias.
        norm: True if a norm follows that layer.
        dropout: the dropout before the output.
    """

    level: Level
    num_labels: int
    pooling: Pooling = "cls"
    activation: HeadActivation | None = None
    bias: bool = True
    norm: bool = False
    dropout: float = 0.1


def parse_sizes(sizes: Sequence[str]) -> list[tuple[float, int, int]]:
    """Parse ``("0:128x2", "0.1:192x2")`` to [(0.0, 128, 2), (0.1, 192, 2)].

    Raises:
        ConfigError: a size is not petaFLOP:WIDTHxLAYERS, or sizes are out of order.
    """
    found = [_SIZE.fullmatch(size) for size in sizes]
    parsed = [(float(f[1]), int(f[2]), int(f[3])) for f in found if f]
    starts = [start for start, *_ in parsed]
    is_rising = starts == sorted(set(starts)) and not min(starts, default=0.0)
    if len(parsed) < len(sizes) or not is_rising or any(width % 64 for _, width, _ in parsed):
        rule = "must be petaFLOP:WIDTHxLAYERS, ascending from 0, with widths in multiples of 64"
        raise ConfigError("sizes", ", ".join(sizes), rule, "Write 0:128x2,0.2:192x2.")
    return parsed


def resolve_config(
    config: ModelConfig,
    *,
    vocab_size: int,
    max_seq_length: int,
    sentence_pair_head: bool = False,
    **special_ids: int | None,
) -> EncoderConfig:
    """Return the architecture of `config` for this vocabulary and input length.

    Args:
        special_ids: ``pad_token_id`` and others of `EncoderConfig`.

    Raises:
        ConfigError: ``model.max_position_embeddings`` is below ``data.max_seq_length``,
            ``model.vocab_size`` is below `vocab_size`, that of the tokenizer, or there is a
            `sentence_pair_head` but no second token type.
    """
    rows = config.vocab_size or vocab_size
    if rows < vocab_size:
        rule = f"is less than the {vocab_size} tokens of the tokenizer"
        raise ConfigError("model.vocab_size", rows, rule, "Raise it or remove it.")
    longest = config.max_position_embeddings or max_seq_length
    if longest < max_seq_length:
        rule = f"is less than data.max_seq_length = {max_seq_length}"
        raise ConfigError("model.max_position_embeddings", longest, rule, "Raise it or remove it.")
    given = {
        "vocab_size": rows,
        "max_position_embeddings": longest,
        "sentence_pair_head": sentence_pair_head,
        **special_ids,
    }
    try:
        resolved = _resolve(config, given)
    except ConfigError as error:
        raise error.within("model") from None
    if sentence_pair_head and resolved.type_vocab_size < 2:
        rule = "must be at least 2, one for each text of a pair (data.pairs)"
        raise ConfigError("model.type_vocab_size", resolved.type_vocab_size, rule, "Set it to 2.")
    return resolved


def alternate_layers(num_layers: int, every: int) -> tuple[LayerType, ...]:
    """Return the types of layers: every n-th, starting with the first, has global attention."""
    layers = range(num_layers)
    return tuple("sliding_attention" if layer % every else "full_attention" for layer in layers)


def find_period(config: EncoderConfig) -> int | None:
    """Return the n of `alternate_layers` for the layers of `config`, or None."""
    count = config.num_hidden_layers
    periods = range(1, count + 1)
    return next((n for n in periods if config.layer_types == alternate_layers(count, n)), None)


def _choose(config: ModelConfig, name: str) -> Any:
    value = getattr(config, name)
    return PRESETS[config.preset][name] if value is None else value


def _resolve(config: ModelConfig, given: Plain) -> EncoderConfig:
    preset = PRESETS[config.preset]
    chosen = {name: _choose(config, name) for name in preset}
    every = chosen.pop("global_attn_every_n_layers")
    # Some fields default to the value of another field.
    if config.norm_bias is None and chosen["norm"] == "rmsnorm":
        chosen["norm_bias"] = False
    if config.first_attention_norm is None and chosen["norm_position"] == "post":
        chosen["first_attention_norm"] = True
    if config.mlp_output_bias is None and chosen["mlp_bias"] != preset["mlp_bias"]:
        chosen["mlp_output_bias"] = chosen["mlp_bias"]
    for name, other in FOLLOWS.get(config.preset, {}).items():
        if getattr(config, name) is None:
            chosen[name] = chosen[other]
    inner = config.intermediate_size
    if inner is None:
        inner = 4 * config.hidden_size
        if chosen["gated_mlp"]:  # 3 matrices, not 2: at 2/3 of the width, parameters are equal
            inner = max(inner * 2 // 3 // 64 * 64, 64)
    heads = config.num_attention_heads
    # An architecture has one spelling only.
    embedding_size = None if config.embedding_size == config.hidden_size else config.embedding_size
    return EncoderConfig(
        hidden_size=config.hidden_size,
        embedding_size=embedding_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=max(1, config.hidden_size // 64) if heads is None else heads,
        intermediate_size=inner,
        layer_types=config.layer_types or alternate_layers(config.num_hidden_layers, every),
        model_type=config.model_type or config.preset,
        attention_backend=config.attention_backend,
        **chosen,
        **given,
    )


# What `ModelConfig.sizes` sets.
SIZE_FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_SIZE = re.compile(r"(\d+(?:\.\d+)?):(\d{2,5})x(\d{1,3})")
_MAY_BE_ZERO = ("type_vocab_size", "pad_token_id", "prediction_head_size")


def _check_numbers(config: EncoderConfig) -> None:
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if name.endswith("_dropout") and not 0 <= value < 1:
            raise ConfigError(name, value, "must be between 0 and 1", "Try 0.1.")
        at_least = 2 if name == "position_buckets" else int(name not in _MAY_BE_ZERO)
        if field.type is int and value < at_least:
            raise ConfigError(name, value, f"must be at least {at_least}")
        if name.endswith(("_theta", "_eps", "init_embedding_norm")) and value <= 0:
            raise ConfigError(name, value, "must be positive")
        if name.startswith("initializer_") and value < 0:
            raise ConfigError(name, value, "must not be negative")
        if name == "pad_token_id" and value >= config.vocab_size:
            raise ConfigError(name, value, f"must be below vocab_size = {config.vocab_size}")


def _check_structure(config: EncoderConfig) -> None:
    width, heads = config.hidden_size, config.num_attention_heads
    if width % heads:
        rule = f"does not divide model.hidden_size = {width}"
        raise ConfigError("num_attention_heads", heads, rule, _nearest_divisors(width, heads))
    if config.positions == "rotary" and config.head_size % 2:
        rule = f"makes a head size of {config.head_size}, but rotary positions need an even one"
        raise ConfigError("num_attention_heads", heads, rule, _nearest_divisors(width, heads))
    _check_embeddings(config)
    if config.norm == "rmsnorm" and config.norm_bias:
        raise ConfigError("norm_bias", True, "has no effect: RMSNorm has no bias", "Remove it.")
    if config.norm_position == "post" and not config.first_attention_norm:
        rule = "requires model.norm_position = pre"
        raise ConfigError("first_attention_norm", False, rule, "Remove it.")
    if config.head_transform and config.prediction_head_size:
        rule = "cannot be combined with model.head_transform = True"
        raise ConfigError(
            "prediction_head_size", config.prediction_head_size, rule, "Set one of the two."
        )
    if config.positions == "relative" and config.attention_backend in ("sdpa", "varlen"):
        rule = "cannot be combined with model.positions = relative"
        raise ConfigError("attention_backend", config.attention_backend, rule, "Use products.")
    if config.attention_backend == "varlen" and config.attention_dropout:
        rule = "cannot be combined with model.attention_backend = varlen"
        raise ConfigError("attention_dropout", config.attention_dropout, rule, "Set it to 0.")
    if len(config.layer_types) != config.num_hidden_layers:
        rule = f"must name one type for each of {config.num_hidden_layers} layers"
        raise ConfigError("layer_types", len(config.layer_types), rule)


def _check_embeddings(config: EncoderConfig) -> None:
    width = config.embedding_width
    name = "hidden_size" if config.embedding_size is None else "embedding_size"
    if width < 1:
        raise ConfigError(name, width, "must be at least 1")
    if config.positions == "sinusoidal" and width % 2:
        raise ConfigError(name, width, "must be even for sinusoidal positions")
    has_transform = config.head_transform or config.prediction_head_size
    if width != config.hidden_size and not has_transform:
        rule = f"differs from model.hidden_size = {config.hidden_size}, but no layer projects to it"
        raise ConfigError(name, width, rule, "Set model.head_transform to True.")


def _nearest_divisors(width: int, heads: int) -> str:
    """Suggest up to three valid numbers of heads, the nearest in ratio, with an even head size."""
    fits = [n for n in range(1, width + 1) if width % n == 0 and width // n % 2 == 0]
    fits = sorted(sorted(fits, key=lambda n: abs(math.log(n / heads)))[:3])
    if not fits:
        return "Choose an even hidden_size."
    *others, last = map(str, fits)
    return f"Choose {', '.join(others)} or {last}." if others else f"Choose {last}."


def to_model_config(config: EncoderConfig) -> ModelConfig:
    """Convert an `EncoderConfig` to the section ``model`` of a run configuration.

    The result resolves to `config` again, except for ids of special tokens, which come from the
    tokenizer. Fields without effect are None.
    """
    names = {field.name for field in dataclasses.fields(ModelConfig)}
    stated: Plain = {name: v for name, v in vars(config).items() if name in names}
    del stated["attention_backend"]  # a setting of the run
    if config.positions != "rotary":
        del stated["rope_theta"], stated["local_rope_theta"]
    if config.positions != "relative":
        del stated["position_buckets"]
    if not config.head_transform and not config.prediction_head_size:
        del stated["head_act"], stated["head_bias"]
    if every := find_period(config):
        del stated["layer_types"]
        stated["global_attn_every_n_layers"] = every
    return ModelConfig(preset=_choose_preset(config), **stated)


def _choose_preset(config: EncoderConfig) -> Preset:
    """Return the preset of the model's `model_type`, or else the nearest preset."""

    def count_differences(preset: Preset) -> int:
        chosen = PRESETS[preset].items()
        return sum(getattr(config, name, value) != value for name, value in chosen)

    named: list[Preset] = [preset for preset in PRESETS if preset == config.model_type]
    return named[0] if named else min(PRESETS, key=count_differences)
