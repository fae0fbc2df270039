"""RobertaForMaskedLM and classes that compute the same function under other names.

Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019; XLM-RoBERTa, Conneau et
al., 2020; CamemBERT, Martin et al., 2020; RobertaPreLayerNorm, RoBERTa with pre-norm as fairseq
trains it, Wettig et al., "Should You Mask 15% in Masked Language Modeling?", 2022.

It differs from BERT in the head, whose activation is always GELU, and in the position table, which
begins with unused rows (`count_padding_rows`).
"""

import dataclasses

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.shared_names import (
    ABSOLUTE,
    GAMMA_BETA,
    NEEDS_TYPES,
    bert_blocks,
    bert_embeddings,
    bert_fields,
    count_padding_rows,
    read_padding_rows,
    roberta_classifiers,
    roberta_head,
    write_padding_rows,
)


def roberta_fields(vocab_size: int) -> tuple[Field, ...]:
    """Return the fields of all these classes, whose default vocabulary sizes differ."""
    return (
        *bert_fields(vocab_size=vocab_size, pad_token_id=1),
        same("type_vocab_size", 2),
        same("hidden_act", "gelu"),
        Field("bos_token_id", ("cls_token_id",), 0),
        Field("eos_token_id", ("sep_token_id",), 2),
    )


ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    preset="roberta",
    since=lambda config: "4.44",
    fields=roberta_fields(vocab_size=50_265),
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
    write_more=write_padding_rows,
    read_more=read_padding_rows,
    classifiers=roberta_classifiers("Roberta"),
)
XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    model_type="xlm-roberta",
    architecture="XLMRobertaForMaskedLM",
    fields=roberta_fields(vocab_size=30_522),
    classifiers=roberta_classifiers("XLMRoberta"),
)
CAMEMBERT = dataclasses.replace(
    XLM_ROBERTA,
    model_type="camembert",
    architecture="CamembertForMaskedLM",
    classifiers=roberta_classifiers("Camembert"),
)
_PRE_NORM = "roberta_prelayernorm"
ROBERTA_PRELAYERNORM = dataclasses.replace(
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
    classifiers=roberta_classifiers("RobertaPreLayerNorm"),
)
