"""BertForMaskedLM, and BertForPreTraining where pairs are judged as well.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019.
"""

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.tables import (
    ABSOLUTE,
    GAMMA_BETA,
    NEEDS_TYPES,
    bert_blocks,
    bert_embeddings,
    bert_fields,
    bert_head,
    bert_pair_head,
)

BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    preset="bert",
    since=lambda config: "4.44",
    fields=(
        *bert_fields(),
        same("type_vocab_size", 2),
        Field("hidden_act", ("hidden_act", "head_act"), "gelu"),
    ),
    tensors={
        **bert_embeddings("bert"),
        **bert_blocks(
            "bert.encoder.layer.*",
            attention_norm="attention.output.LayerNorm",
            mlp_norm="output.LayerNorm",
        ),
        **bert_head(),
        **bert_pair_head(),
    },
    pair_architecture="BertForPreTraining",
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    tied_bias="cls.predictions.bias",
    renamed=GAMMA_BETA,
    ignored=("bert.pooler.*", "cls.seq_relationship.*", "bert.embeddings.position_ids"),
)
