"""UltrabertForMaskedLM: EuroBERT with local attention and a head of two layers.

Its ``sliding_window`` is the window on each side; our ``local_attention`` is the total window. The
first files, older than the class in transformers, have a window and a rotary base for each layer.
"""

from collections.abc import Sequence

from maskwright.config import convert
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, LayerType
from maskwright.model_folder.native.eurobert import PRE_NORM_TENSORS, read_eos, write_heads
from maskwright.model_folder.native.family import (
    ConfigValues,
    Family,
    Field,
    RawConfig,
    read_value,
    same,
)
from maskwright.model_folder.native.shared_names import (
    check_heads,
    read_two_ropes,
    size_fields,
    write_two_ropes,
)


def _write_more(config: EncoderConfig) -> ConfigValues:
    radius = config.local_attention // 2
    return {**write_two_ropes(config), **write_heads(config), "sliding_window": radius}


def _read_more(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    check_heads(raw, values)
    types, radius = _read_layers(raw, values["num_hidden_layers"])
    bases = {"full_attention": 2_560_000.0, "sliding_attention": 10_000.0}
    if raw.get("rope_theta") is not None:
        thetas = convert(raw["rope_theta"], tuple[float, ...], "rope_theta")
        bases.update(_read_each("rope_theta", types, thetas))
    return {
        **read_two_ropes(raw, bases["full_attention"], bases["sliding_attention"]),
        **read_eos(raw, 0),
        "layer_types": types,
        "local_attention": 2 * radius,
    }


def _read_layers(raw: RawConfig, num_layers: int) -> tuple[tuple[LayerType, ...], int]:
    """Return the types of all layers, and the window of local layers on each side."""
    types, radius = raw.get("layer_types"), raw.get("sliding_window")
    if types is None:
        layers = range(1, num_layers + 1)
        types = ["sliding_attention" if layer % 3 else "full_attention" for layer in layers]
    if raw.get("attention_windows") is not None:  # 0 = a global layer
        windows = convert(raw["attention_windows"], tuple[int, ...], "attention_windows")
        types = ["sliding_attention" if window else "full_attention" for window in windows]
        found = _read_each("attention_windows", types, windows)
        radius = found.get("sliding_attention", radius)
    radius = convert(128 if radius is None else radius, int, "sliding_window")
    if radius < 1:
        raise ConfigError("sliding_window", radius, "must be at least 1")
    return read_value(types, "layer_types", "layer_types"), radius


def _read_each(name: str, types: Sequence[str], values: Sequence[float]) -> ConfigValues:
    """Return the value of each layer type from the values of each layer in the first files."""
    found: ConfigValues = {}
    if len(types) != len(values):
        raise ConfigError(name, len(values), f"must have a value for each of {len(types)} layers")
    for kind, value in zip(types, values, strict=True):
        if found.setdefault(kind, value) != value:
            raise ConfigError(name, values, "must be equal in all layers of a type")
    return found


ULTRABERT = Family(
    model_type="ultrabert",
    architecture="UltrabertForMaskedLM",
    preset="ultrabert",
    since=lambda config: "5.20",
    fields=(
        *size_fields(
            vocab_size=32_000,
            hidden_size=4096,
            num_hidden_layers=32,
            num_attention_heads=32,
            intermediate_size=11_008,
            max_position_embeddings=32_768,
            tie_word_embeddings=False,
        ),
        same("hidden_act", "silu"),
        same("attention_bias", False),
        same("attention_dropout", 0.0),
        same("prediction_head_size", 768),
        Field("rms_norm_eps", ("norm_eps",), 1e-6),
        Field("mlp_bias", ("mlp_bias", "mlp_output_bias"), False),
        Field("bos_token_id", ("cls_token_id",), 0),
    ),
    tensors={
        **PRE_NORM_TENSORS,
        "head.transform.input": "head.linear1",
        "head.transform.output": "head.linear2",
        "head.decoder": "head.decoder",
    },
    accepts={"rope_scaling": (None,)},
    at_least={"prediction_head_size": 1},
    renamed={r"^ultrabert\.": "model.", r"^cls\.": "head.decoder."},
    write_more=_write_more,
    read_more=_read_more,
)
