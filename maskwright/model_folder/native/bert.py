"""BertForMaskedLM, BertForPreTraining (with a head for pairs), and MegatronBert (BERT pre-norm).

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019; Shoeybi et al.,
"Megatron-LM", 2019.
"""

import dataclasses
from typing import Any

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.shared_names import (
    ABSOLUTE,
    GAMMA_BETA,
    LARGE,
    NEEDS_TYPES,
    bert_blocks,
    bert_classifiers,
    bert_embeddings,
    bert_fields,
    bert_head,
)


def _list_fields(**sizes: Any) -> tuple[Field, ...]:
    activation = Field("hidden_act", ("hidden_act", "head_act"), "gelu")
    return (*bert_fields(**sizes), same("type_vocab_size", 2), activation)


BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    preset="bert",
    since=lambda config: "4.44",
    fields=_list_fields(),
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
MEGATRON_BERT = dataclasses.replace(
    BERT,
    model_type="megatron-bert",
    architecture="MegatronBertForMaskedLM",
    preset="megatron-bert",
    fields=_list_fields(vocab_size=29_056, **LARGE),
    tensors={
        **BERT.tensors,
        **bert_blocks("bert.encoder.layer.*", attention_norm="attention.ln", mlp_norm="ln"),
        "encoder.final_norm": "bert.encoder.ln",
    },
    pair_architecture="MegatronBertForPreTraining",
    classifiers=bert_classifiers("MegatronBert"),
)
