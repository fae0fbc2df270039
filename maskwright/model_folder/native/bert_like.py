"""BERT, and the families that have its names for fields, embeddings and blocks.

BERT and MegatronBERT (BERT pre-norm): Devlin et al., 2019; Shoeybi et al., "Megatron-LM", 2019.

RoBERTa, Liu et al., 2019; XLM-RoBERTa, Conneau et al., 2020; CamemBERT, Martin et al., 2020;
RobertaPreLayerNorm, RoBERTa with pre-norm as fairseq trains it, Wettig et al., "Should You Mask 15%
in Masked Language Modeling?", 2022. They differ from BERT in the head, whose activation is always
GELU, and in the position table, which begins with unused rows (`count_padding_rows`).

DistilBERT, Sanh et al., 2019: no token types. Its class has no dropout after attention; ours
applies ``hidden_dropout``. ``sinusoidal_pos_embds`` is the initialization of the positions, which
are stored in the file either way.

ELECTRA, a generator and a discriminator, Clark et al., 2020: the width of the embeddings may differ
from that of the layers, and the activation of the generator's head is always GELU.

DeBERTa v2, the class of v2 and v3, He et al., "DeBERTaV3", 2021: with relative positions as in all
published models from v2 on, without the convolution of v2-xlarge. The class has two heads of the
same function; we write the one that all versions of transformers have (``legacy``), and read both.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, HeadActivation, Level
from maskwright.model_folder.native.family import (
    DENSE,
    OUTPUT,
    ConfigValues,
    Family,
    Field,
    Names,
    NativeHead,
    RawConfig,
    name_blocks,
    name_head,
    read_value,
    same,
    size_fields,
)
from maskwright.model_folder.native.own import OWN

ENCODER_ONLY = {"is_decoder": (False,), "add_cross_attention": (False,)}
ABSOLUTE = {**ENCODER_ONLY, "position_embedding_type": ("absolute",)}
# The tensor names of the first BERT of 2018, which transformers also reads for every class.
GAMMA_BETA = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
NEEDS_TYPES = {"type_vocab_size": 1}
LARGE: ConfigValues = {  # as BERT-large
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


def bert_fields(
    *,
    dropped: tuple[str, ...] = ("hidden_dropout", "embedding_dropout"),
    dropout: tuple[float, float] = (0.1, 0.1),
    norm_eps: float = 1e-12,
    **defaults: Any,
) -> tuple[Field, ...]:
    """Return `size_fields` and BERT's names for norms and dropouts.

    Args:
        dropped: our fields for ``hidden_dropout_prob``.
        dropout: the default of it and of ``attention_probs_dropout_prob``.
        norm_eps: the default of ``layer_norm_eps``.
    """
    return (
        *size_fields(**defaults),
        Field("layer_norm_eps", ("norm_eps",), norm_eps),
        Field("hidden_dropout_prob", dropped, dropout[0]),
        Field("attention_probs_dropout_prob", ("attention_dropout",), dropout[1]),
    )


def bert_embeddings(prefix: str) -> Names:
    """Return BERT's names of embeddings; a class may lack some of them."""
    tables = {
        f"encoder.embeddings.{kind}": f"{prefix}.embeddings.{kind}_embeddings"
        for kind in ("word", "position", "token_type")
    }
    return {**tables, "encoder.embeddings.norm": f"{prefix}.embeddings.LayerNorm"}


def bert_blocks(
    layer: str,
    *,
    attention_norm: str = "attention.output.LayerNorm",
    mlp_norm: str = "output.LayerNorm",
) -> Names:
    """Return BERT's names of blocks."""
    qkv = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))
    attention = (qkv, "attention.output.dense", attention_norm)
    return name_blocks(layer, *attention, "intermediate.dense", "output.dense", mlp_norm)


def bert_head(norm: str = "LayerNorm") -> Names:
    """Return ``cls.predictions``; the bias of a tied decoder is ``cls.predictions.bias``."""
    transform, decoder = "cls.predictions.transform", "cls.predictions.decoder"
    return name_head(f"{transform}.dense", f"{transform}.{norm}", decoder)


def bert_classifiers(name: str) -> dict[Level, NativeHead]:
    """Return BERT's classifiers, whose dense layer is the pooler; `name` is the class prefix."""
    head = {DENSE: "bert.pooler.dense", OUTPUT: "classifier"}
    text = NativeHead(f"{name}ForSequenceClassification", head, "tanh", ignored=("cls.*",))
    token, span = token_classifier(name, "cls.*"), span_classifier(name, "cls.*")
    return {"text": text, "token": token, "span": span}


def token_classifier(name: str, *ignored: str) -> NativeHead:
    """Return a token classifier with only an output layer."""
    ignored = ("*.pooler.*", *ignored)
    architecture = f"{name}ForTokenClassification"
    return NativeHead(architecture, {OUTPUT: "classifier"}, None, ignored=ignored)


def span_classifier(name: str, *ignored: str) -> NativeHead:
    """Return a classifier that finds the answer to a question: an output layer of two labels."""
    ignored = ("*.pooler.*", *ignored)
    return NativeHead(f"{name}ForQuestionAnswering", {OUTPUT: "qa_outputs"}, None, ignored=ignored)


_TWO_TYPES = same(type_vocab_size=2)
_ONE_ACTIVATION = Field("hidden_act", ("hidden_act", "head_act"), "gelu")
BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    preset="bert",
    since=lambda config: "4.44",
    fields=(*bert_fields(), *_TWO_TYPES, _ONE_ACTIVATION),
    tensors={
        **bert_embeddings("bert"),
        **bert_blocks("bert.encoder.layer.*"),
        **bert_head(),
        "pair_head.pooler": "bert.pooler.dense",  # both unused by a class without this head
        "pair_head.classifier": "cls.seq_relationship",
    },
    pair_architecture="BertForPreTraining",
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    tied_bias="cls.predictions.bias",
    renamed=GAMMA_BETA,
    ignored=("bert.pooler.*", "cls.seq_relationship.*", "bert.embeddings.position_ids"),
    classifiers=bert_classifiers("Bert"),
)
MEGATRON_BERT = replace(
    BERT,
    model_type="megatron-bert",
    architecture="MegatronBertForMaskedLM",
    preset="megatron-bert",
    fields=(*bert_fields(vocab_size=29_056, **LARGE), *_TWO_TYPES, _ONE_ACTIVATION),
    tensors={
        **BERT.tensors,
        **bert_blocks("bert.encoder.layer.*", attention_norm="attention.ln", mlp_norm="ln"),
        "encoder.final_norm": "bert.encoder.ln",
    },
    pair_architecture="MegatronBertForPreTraining",
    classifiers=bert_classifiers("MegatronBert"),
)


# fairseq counts positions from pad_token_id + 1, so its table has that many unused first rows.


def count_padding_rows(ours: str, config: EncoderConfig) -> int:
    return config.pad_token_id + 1 if ours == "encoder.embeddings.position.weight" else 0


def _write_padding_rows(config: EncoderConfig) -> ConfigValues:
    return {"max_position_embeddings": config.max_position_embeddings + config.pad_token_id + 1}


def _read_padding_rows(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    rows, before = values["max_position_embeddings"], values["pad_token_id"] + 1
    if rows <= before:
        rule = f"must be more than the {before} rows before position 0 (pad_token_id + 1)"
        raise ConfigError("max_position_embeddings", rows, rule)
    return {"max_position_embeddings": rows - before}


def roberta_head() -> Names:
    """Return ``lm_head``; the bias of a tied decoder is ``lm_head.bias``."""
    return name_head("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder")


def _roberta_classifiers(name: str, activation: HeadActivation = "tanh") -> dict[Level, NativeHead]:
    """Return RoBERTa's classifiers, which have a separate dense layer."""
    head = {DENSE: "classifier.dense", OUTPUT: "classifier.out_proj"}
    unused = ("*.pooler.*",)  # which files of older classes hold
    text = NativeHead(f"{name}ForSequenceClassification", head, activation, ignored=unused)
    return {"text": text, "token": token_classifier(name), "span": span_classifier(name)}


def _roberta_fields(vocab_size: int) -> tuple[Field, ...]:
    return (
        *bert_fields(vocab_size=vocab_size, pad_token_id=1),
        *same(type_vocab_size=2, hidden_act="gelu"),
        Field("bos_token_id", ("cls_token_id",), 0),
        Field("eos_token_id", ("sep_token_id",), 2),
    )


ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    preset="roberta",
    since=lambda config: "4.44",
    fields=_roberta_fields(vocab_size=50_265),
    tensors={
        **bert_embeddings("roberta"),
        **bert_blocks("roberta.encoder.layer.*"),
        **roberta_head(),
    },
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    tied_bias="lm_head.bias",
    repeats_bias=True,
    row_offset=count_padding_rows,
    renamed=GAMMA_BETA,
    ignored=("roberta.pooler.*", "roberta.embeddings.position_ids"),
    write_more=_write_padding_rows,
    read_more=_read_padding_rows,
    classifiers=_roberta_classifiers("Roberta"),
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    architecture="XLMRobertaForMaskedLM",
    fields=_roberta_fields(vocab_size=30_522),
    classifiers=_roberta_classifiers("XLMRoberta"),
)
CAMEMBERT = replace(
    XLM_ROBERTA,
    model_type="camembert",
    architecture="CamembertForMaskedLM",
    classifiers=_roberta_classifiers("Camembert"),
)
_PRE_NORM = "roberta_prelayernorm"
ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    model_type="roberta-prelayernorm",
    architecture="RobertaPreLayerNormForMaskedLM",
    preset="roberta-prelayernorm",
    tensors={
        **bert_embeddings(_PRE_NORM),
        **bert_blocks(
            f"{_PRE_NORM}.encoder.layer.*",
            attention_norm="attention.LayerNorm",
            mlp_norm="intermediate.LayerNorm",
        ),
        "encoder.final_norm": f"{_PRE_NORM}.LayerNorm",
        **roberta_head(),
    },
    ignored=(f"{_PRE_NORM}.pooler.*", f"{_PRE_NORM}.embeddings.position_ids"),
    classifiers=_roberta_classifiers("RobertaPreLayerNorm"),
)

DISTILBERT = Family(
    model_type="distilbert",
    architecture="DistilBertForMaskedLM",
    preset="distilbert",
    since=lambda config: "4.44",
    fields=(
        *same(
            vocab_size=30_522,
            max_position_embeddings=512,
            initializer_range=0.02,
            tie_word_embeddings=True,
            pad_token_id=0,
            attention_dropout=0.1,
        ),
        Field("n_layers", ("num_hidden_layers",), 6),
        Field("n_heads", ("num_attention_heads",), 12),
        Field("dim", ("hidden_size",), 768),
        Field("hidden_dim", ("intermediate_size",), 3072),
        Field("activation", ("hidden_act", "head_act"), "gelu"),
        Field("dropout", ("hidden_dropout", "embedding_dropout"), 0.1),
    ),
    tensors={
        **bert_embeddings("distilbert"),
        **name_blocks(
            "distilbert.transformer.layer.*",
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out_lin",
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        **name_head("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    },
    accepts=ENCODER_ONLY,
    renamed=GAMMA_BETA,
    ignored=("distilbert.embeddings.position_ids",),
    classifiers={
        "text": NativeHead(
            "DistilBertForSequenceClassification",
            {DENSE: "pre_classifier", OUTPUT: "classifier"},
            "relu",
            dropout_field="seq_classif_dropout",
        ),
        "token": token_classifier("DistilBert"),
        "span": replace(span_classifier("DistilBert"), dropout_field="qa_dropout"),
    },
)


def _read_width(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    width = raw.get("embedding_size")
    width = read_value(128 if width is None else width, "embedding_size", "embedding_size")
    return {"embedding_size": None if width == values["hidden_size"] else width}


_OLDER_IDS = "electra.embeddings.position_ids"
ELECTRA = Family(
    model_type="electra",
    architecture="ElectraForMaskedLM",
    preset="electra",
    since=lambda config: "4.44",
    fields=(
        *bert_fields(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
        *same(type_vocab_size=2, hidden_act="gelu"),
    ),
    tensors={
        **bert_embeddings("electra"),
        "encoder.project": "electra.embeddings_project",
        **bert_blocks("electra.encoder.layer.*"),
        **name_head(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"
        ),
    },
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    renamed=GAMMA_BETA,
    ignored=("discriminator_predictions.*", _OLDER_IDS),
    write_more=lambda config: {"embedding_size": config.embedding_width},
    read_more=_read_width,
    classifiers=_roberta_classifiers("Electra", activation="gelu"),
)
ELECTRA_DISCRIMINATOR = replace(
    ELECTRA,
    architecture="ElectraForPreTraining",
    tensors={
        **ELECTRA.encoder_tensors,
        DENSE: "discriminator_predictions.dense",
        OUTPUT: "discriminator_predictions.dense_prediction",
    },
    ignored=("generator_predictions.*", "generator_lm_head.*", _OLDER_IDS),
)

# Their defaults are other values, so these must be in the file.
_REQUIRED: Mapping[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}


def _read_deberta(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    for name, needed in _REQUIRED.items():
        value = raw.get(name)
        parts = value.split("|") if isinstance(value, str) and name == "pos_att_type" else value
        found = sorted(map(str, parts)) if isinstance(parts, list) else parts
        if found != needed:
            rule = "is not supported for model_type deberta-v2"
            raise ConfigError(name, value, rule, f"Only {needed} is.")
    sizes = {"max_relative_positions": "max_position_embeddings", "embedding_size": "hidden_size"}
    for name, other in sizes.items():
        unset = -1 if name == "max_relative_positions" else None  # as in their class
        if raw.get(name) not in (None, unset, values[other]):
            raise ConfigError(name, raw[name], f"must be equal to {other} = {values[other]}")
    return {}


_DEBERTA_LAYER = "deberta.encoder.layer.*"
DEBERTA_V2 = Family(
    model_type="deberta-v2",
    architecture="DebertaV2ForMaskedLM",
    preset="deberta-v2",
    since=lambda config: "5.23",
    fields=(
        *bert_fields(
            norm_eps=1e-7,
            vocab_size=128_100,
            hidden_size=1536,
            num_hidden_layers=24,
            num_attention_heads=24,
            intermediate_size=6144,
        ),
        *same(type_vocab_size=0, position_buckets=-1),
        _ONE_ACTIVATION,
    ),
    tensors={
        **bert_embeddings("deberta"),
        **bert_blocks(_DEBERTA_LAYER),
        "encoder.blocks.*.attention.qkv": tuple(
            f"{_DEBERTA_LAYER}.attention.self.{part}_proj" for part in ("query", "key", "value")
        ),
        "encoder.relative.embedding": "deberta.encoder.rel_embeddings",
        "encoder.relative.norm": "deberta.encoder.LayerNorm",
        **bert_head(),
    },
    accepts={"conv_kernel_size": (0,), "pooler_hidden_act": ("gelu",)},
    tied_bias="cls.predictions.bias",
    renamed={
        **GAMMA_BETA,
        r"^lm_predictions\.lm_head\.(dense|LayerNorm)": r"cls.predictions.transform.\1",
        r"^lm_predictions\.lm_head\.bias": "cls.predictions.bias",
    },
    ignored=("mask_predictions.*", "deberta.embeddings.position_*"),
    write_more=lambda config: {**_REQUIRED, "max_relative_positions": -1, "legacy": True},
    read_more=_read_deberta,
    classifiers={
        "text": NativeHead(
            "DebertaV2ForSequenceClassification",
            {DENSE: "pooler.dense", OUTPUT: "classifier"},
            "gelu",
            dropout_field="cls_dropout",
            ignored=("cls.*",),
        ),
        "token": token_classifier("DebertaV2", "cls.*"),
    },
)
# transformers loads its encoder; no class there has the head.
DEBERTA_V2_DISCRIMINATOR = replace(
    DEBERTA_V2,
    architecture="DebertaV2Discriminator",
    tensors={
        **DEBERTA_V2.encoder_tensors,
        DENSE: "mask_predictions.dense",
        OUTPUT: "mask_predictions.classifier",
    },
    tied_bias="",
    ignored=("cls.*",),
)
OWN_DISCRIMINATOR = replace(
    OWN,
    architecture="Discriminator",
    tensors={**OWN.encoder_tensors, DENSE: DENSE, OUTPUT: OUTPUT},
)
# By model_type; `architectures` distinguishes them from masked language models of the same type.
DISCRIMINATORS: dict[str, Family] = {
    family.model_type: family
    for family in (ELECTRA_DISCRIMINATOR, DEBERTA_V2_DISCRIMINATOR, OWN_DISCRIMINATOR)
}
