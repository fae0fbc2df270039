"""BertForMaskedLM, or BertForPreTraining with a head for pairs; MegatronBert, the same pre-norm.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019; Shoeybi et al.,
"Megatron-LM", 2019.
"""

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.shared_names import (
    ABSOLUTE,
    GAMMA_BETA,
    NEEDS_TYPES,
    bert_blocks,
    bert_classifiers,
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
    classifiers=bert_classifiers("Bert"),
)
MEGATRON_BERT = Family(
    model_type="megatron-bert",
    architecture="MegatronBertForMaskedLM",
    preset="megatron-bert",
    since=lambda config: "4.44",
    fields=(
        *bert_fields(
            vocab_size=29_056,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
        ),
        same("type_vocab_size", 2),
        Field("hidden_act", ("hidden_act", "head_act"), "gelu"),
    ),
    tensors={
        **bert_embeddings("bert"),
        **bert_blocks("bert.encoder.layer.*", attention_norm="attention.ln", mlp_norm="ln"),
        "encoder.final_norm": "bert.encoder.ln",
        **bert_head(),
        **bert_pair_head(),
    },
    pair_architecture="MegatronBertForPreTraining",
    accepts=ABSOLUTE,
    at_least=NEEDS_TYPES,
    tied_bias="cls.predictions.bias",
    renamed=GAMMA_BETA,
    ignored=("bert.pooler.*", "cls.seq_relationship.*", "bert.embeddings.position_ids"),
    classifiers=bert_classifiers("MegatronBert"),
)
