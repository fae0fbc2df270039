"""ElectraForMaskedLM, a generator, and ElectraForPreTraining, a discriminator.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020.
It differs from BERT in the embeddings, whose width may differ from the layers', and in the head of
the generator, whose activation is always GELU.
"""

import dataclasses

from maskwright.model_folder.native.deberta_v2 import DEBERTA_V2
from maskwright.model_folder.native.family import ConfigValues, Family, RawConfig, read_value, same
from maskwright.model_folder.native.own import ENCODER_TENSORS, OWN
from maskwright.model_folder.native.shared_names import (
    ABSOLUTE,
    DENSE,
    GAMMA_BETA,
    NEEDS_TYPES,
    OUTPUT,
    bert_blocks,
    bert_embeddings,
    bert_fields,
    roberta_classifiers,
)

_EMBEDDING_SIZE = 128


def _read_width(raw: RawConfig, values: ConfigValues) -> ConfigValues:
    width = raw.get("embedding_size")
    width = read_value(_EMBEDDING_SIZE if width is None else width, *2 * ("embedding_size",))
    return {"embedding_size": None if width == values["hidden_size"] else width}


_ENCODER = {
    **bert_embeddings("electra"),
    "encoder.project": "electra.embeddings_project",
    **bert_blocks("electra.encoder.layer.*"),
}
_OLDER = "electra.embeddings.position_ids"

ELECTRA = Family(
    model_type="electra",
    architecture="ElectraForMaskedLM",
    preset="electra",
    since=lambda config: "4.44",
    fields=(
        *bert_fields(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
        same("type_vocab_size", 2),
        same("hidden_act", "gelu"),
    ),
    tensors={
        **_ENCODER,
        "head.transform.dense": "generator_predictions.dense",
        "head.transform.norm": "generator_predictions.LayerNorm",
        "head.decoder": "generator_lm_head",
    },
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    renamed=GAMMA_BETA,
    ignored=("discriminator_predictions.*", _OLDER),
    write_more=lambda config: {"embedding_size": config.embedding_width},
    read_more=_read_width,
    classifiers=roberta_classifiers("Electra", activation="gelu"),
)
ELECTRA_DISCRIMINATOR = dataclasses.replace(
    ELECTRA,
    architecture="ElectraForPreTraining",
    tensors={
        **_ENCODER,
        "head.dense": "discriminator_predictions.dense",
        "head.output": "discriminator_predictions.dense_prediction",
    },
    ignored=("generator_predictions.*", "generator_lm_head.*", _OLDER),
)
# transformers loads its encoder; no class there has the head.
DEBERTA_V2_DISCRIMINATOR = dataclasses.replace(
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
OWN_DISCRIMINATOR = dataclasses.replace(
    OWN,
    architecture="Discriminator",
    tensors={name: name for name in (*ENCODER_TENSORS, DENSE, OUTPUT)},
)
# By model_type; `architectures` distinguishes them from masked language models of the same type.
DISCRIMINATORS: dict[str, Family] = {
    family.model_type: family
    for family in (ELECTRA_DISCRIMINATOR, DEBERTA_V2_DISCRIMINATOR, OWN_DISCRIMINATOR)
}
