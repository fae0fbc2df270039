"""The published architectures, and the search for the one that an `EncoderConfig` is.

To add an architecture, write its `Family` in a module of ``native/`` and add it to `FAMILIES`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, Level, Pooling
from maskwright.model_folder.native.bert_like import (
    BERT,
    CAMEMBERT,
    DEBERTA_V2,
    DISTILBERT,
    ELECTRA,
    MEGATRON_BERT,
    ROBERTA,
    ROBERTA_PRELAYERNORM,
    XLM_ROBERTA,
)
from maskwright.model_folder.native.family import Family, NativeHead
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.native.pre_norm import EUROBERT, MODERNBERT, NEOBERT, ULTRABERT
from maskwright.model_folder.native.rotary import ESM, GTE, JINA_EMBEDDINGS_V3, NOMIC_BERT

# If several compute the same function and the config names none of them, the first one is used.
FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(BERT, MODERNBERT, EUROBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, MEGATRON_BERT),
        *(ROBERTA_PRELAYERNORM, ESM, JINA_EMBEDDINGS_V3, NOMIC_BERT, GTE, ULTRABERT, ELECTRA),
        *(DEBERTA_V2, NEOBERT, OWN),
    )
}
# Fields that only training uses. They do not affect the choice of a family: if it lacks such a
# field, the value is stored under "maskwright" in config.json.
TRAINING_FIELDS = (
    "embedding_dropout", "attention_dropout", "hidden_dropout", "mlp_dropout",
    "initializer_range", "initializer_cutoff_factor", "init_output", "init_embedding_norm",
)  # fmt: skip
# Fields that only `Family.write_more` may write; the preset does not fix them.
_WRITTEN_APART = ("rope_theta", "local_rope_theta", "local_attention")
_TOKEN_IDS = ("cls_token_id", "sep_token_id", "mask_token_id")
_MLM_HEAD = (
    *("tie_word_embeddings", "head_transform", "prediction_head_size", "decoder_bias"),
    "next_token_prediction",
)
_NOT_ARCHITECTURE = (*TRAINING_FIELDS, *_TOKEN_IDS, "attention_backend", "model_type")


class NativeClassifier(NamedTuple):
    """A classifier class of transformers: the family of its encoder, and its head."""

    family: Family
    head: NativeHead


def list_native() -> list[Family]:
    """Return the published families: all except maskwright's own."""
    return [family for family in FAMILIES.values() if family is not OWN]


def list_classifiers(level: Level) -> dict[str, NativeClassifier]:
    """Return the classifiers of a level by model_type, including maskwright's own."""
    return {
        name: NativeClassifier(family.as_classifier(head), head)
        for name, family in FAMILIES.items()
        if (head := family.classifiers.get(level)) is not None
    }


def find_classifier(classes: Sequence[str]) -> tuple[Level, NativeClassifier] | None:
    """Return the first classifier whose class is among `classes`, and its level."""
    levels: tuple[Level, ...] = get_args(Level)
    known: dict[str, tuple[Level, NativeClassifier]] = {
        native.head.architecture: (level, native)
        for level in levels
        for native in list_classifiers(level).values()
    }
    return next((known[name] for name in classes if name in known), None)


def native_family(config: EncoderConfig) -> tuple[Family | None, str]:
    """Return the published family that computes the same function as `config`.

    Several families may (every RoBERTa is also a BERT); then `config.model_type` decides. A class
    whose code is not in transformers must be named by it.

    Returns:
        The family and an empty reason, or None and a sentence about the nearest family: the
        fields of `config` that it lacks.
    """
    named = config.model_type
    candidates = (f for f in list_native() if not f.code or f.model_type == named)
    return _find_nearest([(family, ()) for family in candidates], config)


def choose_headless(config: EncoderConfig, family: Family, own: Family) -> tuple[Family, str]:
    """Return `family` if it computes the encoder of `config`, else `own` and the reason.

    Fields of heads that predict tokens are ignored. For the encoder, `native_family` may return a
    different family, such as BERT.
    """
    fields = _find_misfits(config, family, (*_MLM_HEAD, "head_act", "head_bias"))
    if not fields:
        return family, ""
    return own, f"{family.architecture}, the only one for it, has no {'; no '.join(fields)}"


def native_classifier(
    config: EncoderConfig, level: Level, pooling: Pooling | None = None
) -> tuple[NativeClassifier, str]:
    """Return the classifier for this encoder, and the reason if it is maskwright's own."""
    classifiers = list_classifiers(level)
    own = classifiers.pop(OWN.model_type)
    if pooling == "bi":
        return own, "none encodes two texts separately and compares them"
    candidates = list[tuple[Family, tuple[str, ...]]]()
    for native in classifiers.values():
        # A head whose activation is a function of the configuration depends on these two fields.
        unread = () if callable(native.head.activation) else ("head_act", "head_bias")
        candidates.append((native.family, (*_MLM_HEAD, "sentence_pair_head", *unread)))
    found, reason = _find_nearest(candidates, config)
    return (classifiers[found.model_type] if found else own), reason


def _find_nearest(
    candidates: Sequence[tuple[Family, tuple[str, ...]]], config: EncoderConfig
) -> tuple[Family | None, str]:
    """Return the first family that computes `config`, or a sentence about the nearest one.

    Args:
        candidates: families, each with the fields that have no effect on its class; the family that
            `config` names is tried first.
    """
    misfits: dict[str, list[str]] = {}
    ordered = sorted(candidates, key=lambda one: one[0].model_type != config.model_type)
    for family, unused in ordered:
        misfits[family.architecture] = _find_misfits(config, family, unused)
        if not misfits[family.architecture]:
            return family, ""
    nearest = min(misfits, key=lambda name: len(misfits[name]))
    fields = "; no ".join(misfits[nearest])
    return None, f"{nearest}, the nearest class of transformers, has no {fields}"


def _find_misfits(config: EncoderConfig, family: Family, unused: tuple[str, ...]) -> list[str]:
    """Return the fields of `config` that `family` cannot represent, with their values."""
    ours = {name: value for name, value in _effective_fields(config).items() if name not in unused}
    misfits = []
    try:
        theirs = _fields(family.read_config(family.write_config(config)))
    except ConfigError as error:  # the family rejects the configuration
        theirs = {**ours, **family.fixed, **{name: ours.get(name) for name in _WRITTEN_APART}}
        misfits = [f"{error.field} = {error.value}"]
    differing = [name for name, value in ours.items() if theirs[name] != value]
    return misfits + [_spell(name, getattr(config, name)) for name in differing]


def _spell(name: str, value: Any) -> str:
    return "sliding_attention in layer_types" if name == "layer_types" else f"{name} = {value}"


def _fields(config: EncoderConfig) -> dict[str, Any]:
    # An odd window and the even one below it have the same number of tokens on each side.
    halved = {"local_attention": config.local_attention // 2}
    return {**vars(config), **halved, "embedding_size": config.embedding_width}


def _effective_fields(config: EncoderConfig) -> dict[str, Any]:
    """Return the fields that affect the computed function."""
    idle = set[str](_NOT_ARCHITECTURE)
    sliding = "sliding_attention" in config.layer_types
    if not sliding:
        idle.add("local_attention")
    if config.positions != "rotary" or "full_attention" not in config.layer_types:
        idle.add("rope_theta")
    if config.positions != "rotary" or not sliding:
        idle.add("local_rope_theta")
    if config.positions != "relative":
        idle.add("position_buckets")
    if not config.head_transform and not config.prediction_head_size:
        idle.update(("head_act", "head_bias"))
    return {name: value for name, value in _fields(config).items() if name not in idle}


def training_fields(config: EncoderConfig, family: Family) -> dict[str, Any]:
    """Return the training fields that `family` lacks."""
    back = family.read_config(family.write_config(config))
    return {
        name: getattr(config, name)
        for name in TRAINING_FIELDS
        if getattr(back, name) != getattr(config, name)
    }
