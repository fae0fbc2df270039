"""A native family in one file, which a test registers with one line: BERT under other names."""

import dataclasses

from maskwright.model_folder.native.bert_like import (
    BERT,
    bert_blocks,
    bert_embeddings,
    bert_head,
    token_classifier,
)

TOY = dataclasses.replace(
    BERT,
    model_type="toy",
    architecture="ToyForMaskedLM",
    pair_architecture="",
    tensors={
        **bert_embeddings("toy"),
        **bert_blocks("toy.layers.*", attention_norm="norm1", mlp_norm="norm2"),
        **bert_head(),
    },
    ignored=(),
    classifiers={"token": token_classifier("Toy")},
)
