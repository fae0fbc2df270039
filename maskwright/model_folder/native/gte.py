"""GteForMaskedLM. Zhang et al., "mGTE: Generalized Long-Context Text Representation", 2024."""

from maskwright.model_folder.native.family import Family, same
from maskwright.model_folder.native.shared_names import (
    GAMMA_BETA,
    bert_embeddings,
    bert_fields,
    llama_blocks,
    read_one_rope,
    roberta_head,
    write_one_rope,
)

GTE = Family(
    model_type="gte",
    architecture="GteForMaskedLM",
    preset="gte",
    since=lambda config: "5.18",
    fields=(
        *bert_fields(
            dropped=("hidden_dropout", "embedding_dropout", "mlp_dropout"),
            dropout=(0.1, 0.0),
            vocab_size=250_048,
            max_position_embeddings=8192,
            pad_token_id=1,
        ),
        same("type_vocab_size", 1),
        same("hidden_act", "gelu"),
    ),
    tensors={**bert_embeddings("gte"), **llama_blocks("gte.layers.*"), **roberta_head()},
    accepts={"rope_scaling": (None,)},
    renamed={
        **GAMMA_BETA,
        r"encoder\.layer\b": "layers",
        r"attention\.o_proj": "self_attn.o_proj",
        r"attn_ln\b": "post_attention_layernorm",
        r"mlp_ln\b": "post_mlp_layernorm",
        r"lm_head\.norm\b": "lm_head.layer_norm",
    },
    fused={
        "attention.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
    },
    ignored=("gte.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(160_000.0),
)
