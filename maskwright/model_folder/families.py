"""Which published architecture an `EncoderConfig` is, if it is one."""

from typing import Any

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, Level
from maskwright.model_folder.native.bert import BERT
from maskwright.model_folder.native.classifiers import FORMS, Form
from maskwright.model_folder.native.distilbert import DISTILBERT
from maskwright.model_folder.native.electra import ELECTRA, ELECTRA_DISCRIMINATOR
from maskwright.model_folder.native.esm import ESM
from maskwright.model_folder.native.eurobert import EUROBERT
from maskwright.model_folder.native.family import Family
from maskwright.model_folder.native.gte import GTE
from maskwright.model_folder.native.jina_embeddings_v3 import JINA_EMBEDDINGS_V3
from maskwright.model_folder.native.megatron_bert import MEGATRON_BERT
from maskwright.model_folder.native.modernbert import MODERNBERT
from maskwright.model_folder.native.nomic_bert import NOMIC_BERT
from maskwright.model_folder.native.own import OWN, OWN_DISCRIMINATOR
from maskwright.model_folder.native.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from maskwright.model_folder.native.roberta_prelayernorm import ROBERTA_PRELAYERNORM
from maskwright.model_folder.native.ultrabert import ULTRABERT

# Where several compute the same function and none is asked for, the first of them is it.
NATIVE: tuple[Family, ...] = (
    *(BERT, MODERNBERT, EUROBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, MEGATRON_BERT),
    *(ROBERTA_PRELAYERNORM, ESM, JINA_EMBEDDINGS_V3, NOMIC_BERT, GTE, ULTRABERT, ELECTRA),
)
FAMILIES: dict[str, Family] = {family.model_type: family for family in (*NATIVE, OWN)}
# Encoders with a head that tells replaced tokens, by the same words; their class tells them apart.
DISCRIMINATORS: dict[str, Family] = {
    family.model_type: family for family in (ELECTRA_DISCRIMINATOR, OWN_DISCRIMINATOR)
}

# Fields that only training reads. They never cost a model its native home: where a family has no
# word for one, it is kept under "maskwright" in config.json.
TRAINING_FIELDS = (
    "embedding_dropout",
    "attention_dropout",
    "hidden_dropout",
    "mlp_dropout",
    "initializer_range",
    "initializer_cutoff_factor",
    "init_output",
)
# What `Family.write_more` says, if anything does; a preset's values are not the only ones.
_WRITTEN_APART = ("rope_theta", "local_rope_theta", "local_attention")
_TOKEN_IDS = ("cls_token_id", "sep_token_id", "mask_token_id")
_MLM_HEAD = (
    *("tie_word_embeddings", "head_transform", "prediction_head_size", "decoder_bias"),
    "next_token_prediction",
)
_NOT_ARCHITECTURE = (*TRAINING_FIELDS, *_TOKEN_IDS, "attention_backend", "model_type")


def native_family(config: EncoderConfig) -> tuple[Family | None, str]:
    """The published family that computes the same function as `config`, or why there is none.

    Several may, a RoBERTa being a BERT as well; then it is the one that `config` names.

    Returns:
        The family and an empty reason, or None and a sentence about the nearest family: the
        fields of `config` that it has no word for.
    """
    asked_first = sorted(NATIVE, key=lambda family: family.model_type != config.model_type)
    misfits = {family.architecture: _find_misfits(config, family) for family in asked_first}
    for family in asked_first:
        if not misfits[family.architecture]:
            return family, ""
    nearest = min(misfits, key=lambda name: len(misfits[name]))
    fields = "; no ".join(misfits[nearest])
    return None, f"{nearest}, the nearest class of transformers, has no {fields}"


def discriminator_family(config: EncoderConfig) -> tuple[Family, str]:
    """The family of a discriminator, and why it is our own if it is; of what MLM heads have, none.

    Its encoder may be one that `native_family` knows by another name, as BERT's.
    """
    fields = _find_misfits(config, ELECTRA_DISCRIMINATOR, (*_MLM_HEAD, "head_act", "head_bias"))
    if not fields:
        return ELECTRA_DISCRIMINATOR, ""
    nearest = ELECTRA_DISCRIMINATOR.architecture
    return OWN_DISCRIMINATOR, f"{nearest}, the only one for it, has no {'; no '.join(fields)}"


def classifier_form(config: EncoderConfig, level: Level) -> tuple[Form, str]:
    """What labels texts or tokens over this encoder, and why it is our own form if it is."""
    forms = FORMS[level]
    unused = (*_MLM_HEAD, "sentence_pair_head")
    candidates = [family for family in NATIVE if family.model_type in forms]
    candidates.sort(key=lambda family: family.model_type != config.model_type)
    misfits: dict[str, list[str]] = {}
    for family in candidates:
        form = forms[family.model_type]
        head = () if callable(form.activation) else ("head_act", "head_bias")
        found = _find_misfits(config, family, (*unused, *head))
        if not found:
            return form, ""
        misfits[form.family.architecture] = found
    nearest = min(misfits, key=lambda name: len(misfits[name]))
    fields = "; no ".join(misfits[nearest])
    return forms[OWN.model_type], f"{nearest}, the nearest class of transformers, has no {fields}"


def _find_misfits(config: EncoderConfig, family: Family, unused: tuple[str, ...] = ()) -> list[str]:
    ours = {name: value for name, value in _effective_fields(config).items() if name not in unused}
    misfits = []
    try:
        theirs = _fields(family.read_config(family.write_config(config)))
    except ConfigError as error:  # not even a configuration of theirs
        theirs = {**ours, **family.fixed, **{name: ours.get(name) for name in _WRITTEN_APART}}
        misfits = [f"{error.field} = {error.value}"]
    differing = [name for name, value in ours.items() if theirs[name] != value]
    return misfits + [_spell(name, getattr(config, name)) for name in differing]


def _spell(name: str, value: Any) -> str:
    return "sliding_attention in layer_types" if name == "layer_types" else f"{name} = {value}"


def _fields(config: EncoderConfig) -> dict[str, Any]:
    # An odd window and the even one below it are the same: so many tokens to each side.
    halved = {"local_attention": config.local_attention // 2}
    return {**vars(config), **halved, "embedding_size": config.embedding_width}


def _effective_fields(config: EncoderConfig) -> dict[str, Any]:
    """The fields that decide which function is computed, and nothing that has no effect."""
    idle = set[str](_NOT_ARCHITECTURE)
    sliding = "sliding_attention" in config.layer_types
    if not sliding:
        idle.add("local_attention")
    if config.positions != "rotary" or "full_attention" not in config.layer_types:
        idle.add("rope_theta")
    if config.positions != "rotary" or not sliding:
        idle.add("local_rope_theta")
    if not config.head_transform and not config.prediction_head_size:
        idle.update(("head_act", "head_bias"))
    return {name: value for name, value in _fields(config).items() if name not in idle}


def training_fields(config: EncoderConfig, family: Family) -> dict[str, Any]:
    """The fields that training reads and `family` has no word for."""
    back = family.read_config(family.write_config(config))
    return {
        name: getattr(config, name)
        for name in TRAINING_FIELDS
        if getattr(back, name) != getattr(config, name)
    }
