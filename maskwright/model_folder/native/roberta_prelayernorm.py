"""RobertaPreLayerNormForMaskedLM: RoBERTa with pre-norm, as fairseq trains it.

Wettig et al., "Should You Mask 15% in Masked Language Modeling?", 2022.
"""

import dataclasses

from maskwright.model_folder.native.roberta import ROBERTA
from maskwright.model_folder.native.tables import bert_blocks, bert_embeddings, roberta_head

PREFIX = "roberta_prelayernorm"
ROBERTA_PRELAYERNORM = dataclasses.replace(
    ROBERTA,
    model_type="roberta-prelayernorm",
    architecture="RobertaPreLayerNormForMaskedLM",
    preset="roberta-prelayernorm",
    tensors={
        **bert_embeddings(PREFIX),
        **bert_blocks(
            f"{PREFIX}.encoder.layer.*",
            attention_norm="attention.LayerNorm",
            mlp_norm="intermediate.LayerNorm",
        ),
        "encoder.final_norm": f"{PREFIX}.LayerNorm",
        **roberta_head(),
    },
    ignored=(f"{PREFIX}.pooler.*", f"{PREFIX}.embeddings.position_ids"),
)
