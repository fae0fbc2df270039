"""Published architectures: the values of the structural fields of `ModelConfig`.

The name of a preset is the ``model_type`` of ``config.json``, and its models are saved with the
tensor names of that class. Sizes are not part of a preset.
"""

from typing import Literal

from maskwright.config import Plain

Preset = Literal[
    "bert", "modernbert", "eurobert", "roberta", "distilbert", "megatron-bert",
    "roberta-prelayernorm", "esm", "jina_embeddings_v3", "nomic_bert", "gte", "ultrabert",
    "electra", "neobert", "deberta-v2",
]  # fmt: skip

# Two more classes of transformers compute the same function as a preset.
ModelType = Literal[Preset, "xlm-roberta", "camembert"]

# Devlin et al., 2019.
_BERT: Plain = {
    "hidden_act": "gelu", "gated_mlp": False, "norm": "layernorm", "norm_position": "post",
    "norm_bias": True, "norm_eps": 1e-12, "positions": "learned", "position_buckets": 256,
    "rope_theta": 10_000.0, "local_rope_theta": 10_000.0, "embedding_norm": True,
    "first_attention_norm": True, "type_vocab_size": 2,
    "attention_bias": True, "mlp_bias": True, "mlp_output_bias": True,
    "qk_norm": False, "global_attn_every_n_layers": 1, "local_attention": 128,
    "tie_word_embeddings": True, "head_transform": True, "head_act": "gelu", "head_bias": True,
    "prediction_head_size": 0, "decoder_bias": True, "next_token_prediction": False,
    "embedding_dropout": 0.1, "attention_dropout": 0.1, "hidden_dropout": 0.1,
    "mlp_dropout": 0.0, "initializer_range": 0.02, "initializer_cutoff_factor": 0.0,
    "init_output": "normal", "init_embedding_norm": 1.0,
}  # fmt: skip
# Warner et al., 2024.
_MODERNBERT: Plain = {
    "hidden_act": "gelu", "gated_mlp": True, "norm": "layernorm", "norm_position": "pre",
    "norm_bias": False, "norm_eps": 1e-5, "positions": "rotary", "position_buckets": 256,
    "rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "embedding_norm": True,
    "first_attention_norm": False, "type_vocab_size": 0,
    "attention_bias": False, "mlp_bias": False, "mlp_output_bias": False,
    "qk_norm": False, "global_attn_every_n_layers": 3, "local_attention": 128,
    "tie_word_embeddings": True, "head_transform": True, "head_act": "gelu", "head_bias": False,
    "prediction_head_size": 0, "decoder_bias": True, "next_token_prediction": False,
    "embedding_dropout": 0.0, "attention_dropout": 0.0, "hidden_dropout": 0.0,
    "mlp_dropout": 0.0, "initializer_range": 0.02, "initializer_cutoff_factor": 2.0,
    "init_output": "scaled", "init_embedding_norm": 1.0,
}  # fmt: skip
# Boizard et al., 2025.
_EUROBERT: Plain = {
    **_MODERNBERT, "hidden_act": "silu", "norm": "rmsnorm", "rope_theta": 10_000.0,
    "embedding_norm": False, "first_attention_norm": True, "global_attn_every_n_layers": 1,
    "tie_word_embeddings": False, "head_transform": False, "decoder_bias": False,
    "initializer_cutoff_factor": 0.0, "init_output": "normal",
}  # fmt: skip
_NO_DROPOUT = {"embedding_dropout": 0.0, "attention_dropout": 0.0, "hidden_dropout": 0.0}

# Liu et al., 2019. XLM-RoBERTa and CamemBERT are the same.
_ROBERTA = {**_BERT, "type_vocab_size": 1, "norm_eps": 1e-5}

PRESETS: dict[Preset, Plain] = {
    "bert": _BERT,
    "modernbert": _MODERNBERT,
    "eurobert": _EUROBERT,
    "roberta": _ROBERTA,
    # Sanh et al., 2019.
    "distilbert": {**_BERT, "type_vocab_size": 0},
    # Shoeybi et al., 2019: BERT with pre-norm.
    "megatron-bert": {**_BERT, "norm_position": "pre", "embedding_norm": False},
    # Wettig et al., "Should You Mask 15% in Masked Language Modeling?", 2022.
    "roberta-prelayernorm": {**_ROBERTA, "norm_position": "pre"},
    # ESM-2, Lin et al., 2022: for proteins; an encoder with pre-norm and rotary positions.
    "esm": {
        **_BERT, **_NO_DROPOUT, "norm_position": "pre", "norm_eps": 1e-5, "positions": "rotary",
        "embedding_norm": False, "type_vocab_size": 0,
    },
    # Sturua et al., 2024: XLM-RoBERTa with rotary positions.
    "jina_embeddings_v3": {**_ROBERTA, "positions": "rotary", "rope_theta": 20_000.0},
    # Nussbaum et al., 2024.
    "nomic_bert": {
        **_BERT, **_NO_DROPOUT, "positions": "rotary", "rope_theta": 1_000.0, "hidden_act": "silu",
        "gated_mlp": True, "attention_bias": False, "mlp_bias": False, "mlp_output_bias": False,
        "head_act": "silu",
    },
    # Zhang et al., "mGTE", 2024.
    "gte": {
        **_BERT, "positions": "rotary", "rope_theta": 160_000.0, "gated_mlp": True,
        "mlp_bias": False, "type_vocab_size": 1, "attention_dropout": 0.0,
    },
    # EuroBERT with local attention and a head of two layers. The published model has a global layer
    # every third from the third; here, as in all presets, it is every third from the first.
    "ultrabert": {
        **_EUROBERT, "norm_eps": 1e-6, "rope_theta": 2_560_000.0, "global_attn_every_n_layers": 3,
        "local_attention": 256, "prediction_head_size": 768, "head_act": "gelu_pytorch_tanh",
    },
    # Le Breton et al., 2025. The inner width of the MLP must be a multiple of 8.
    "neobert": {**_EUROBERT, "decoder_bias": True},
    # He et al., 2021: BERT with disentangled attention to relative positions; v3 is the same.
    "deberta-v2": {**_BERT, "positions": "relative", "norm_eps": 1e-7, "type_vocab_size": 0},
    # Clark et al., 2020: BERT, optionally with another embedding width (embedding_size).
    "electra": _BERT,
}  # fmt: skip

# Fields that are a single one in published configurations: the first defaults to the second.
FOLLOWS: dict[Preset, dict[str, str]] = {
    "bert": {"head_act": "hidden_act"},
    "distilbert": {"head_act": "hidden_act"},
    "megatron-bert": {"head_act": "hidden_act"},
    "nomic_bert": {"head_act": "hidden_act"},
    "deberta-v2": {"head_act": "hidden_act"},
    "eurobert": {"decoder_bias": "mlp_bias"},
}
