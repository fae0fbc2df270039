"""DistilBertForMaskedLM: BERT without token types. Sanh et al., "DistilBERT", 2019.

``sinusoidal_pos_embds`` is the initialization of the positions, which are stored in the file either
way. Its class has no dropout after attention; ours applies ``hidden_dropout``.
"""

from dataclasses import replace

from maskwright.model_folder.native.family import Family, Field, NativeHead, same
from maskwright.model_folder.native.shared_names import (
    DENSE,
    ENCODER_ONLY,
    GAMMA_BETA,
    OUTPUT,
    bert_embeddings,
    span_classifier,
    token_classifier,
)

LAYER = "distilbert.transformer.layer.*"
DISTILBERT = Family(
    model_type="distilbert",
    architecture="DistilBertForMaskedLM",
    preset="distilbert",
    since=lambda config: "4.44",
    fields=(
        same("vocab_size", 30_522),
        same("max_position_embeddings", 512),
        same("initializer_range", 0.02),
        same("tie_word_embeddings", True),
        same("pad_token_id", 0),
        same("attention_dropout", 0.1),
        Field("n_layers", ("num_hidden_layers",), 6),
        Field("n_heads", ("num_attention_heads",), 12),
        Field("dim", ("hidden_size",), 768),
        Field("hidden_dim", ("intermediate_size",), 3072),
        Field("activation", ("hidden_act", "head_act"), "gelu"),
        Field("dropout", ("hidden_dropout", "embedding_dropout"), 0.1),
    ),
    tensors={
        **bert_embeddings("distilbert"),
        "encoder.blocks.*.attention.qkv": tuple(f"{LAYER}.attention.{one}_lin" for one in "qkv"),
        "encoder.blocks.*.attention.output": f"{LAYER}.attention.out_lin",
        "encoder.blocks.*.attention_norm": f"{LAYER}.sa_layer_norm",
        "encoder.blocks.*.mlp.input": f"{LAYER}.ffn.lin1",
        "encoder.blocks.*.mlp.output": f"{LAYER}.ffn.lin2",
        "encoder.blocks.*.mlp_norm": f"{LAYER}.output_layer_norm",
        "head.transform.dense": "vocab_transform",
        "head.transform.norm": "vocab_layer_norm",
        "head.decoder": "vocab_projector",
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
