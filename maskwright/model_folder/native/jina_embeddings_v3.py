"""JinaEmbeddingsV3ForMaskedLM: XLM-RoBERTa with rotary positions. Sturua et al., 2024."""

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.shared_names import (
    GAMMA_BETA,
    LARGE,
    NEEDS_TYPES,
    bert_embeddings,
    bert_fields,
    llama_blocks,
    read_one_rope,
    roberta_head,
    write_one_rope,
)

JINA_EMBEDDINGS_V3 = Family(
    model_type="jina_embeddings_v3",
    architecture="JinaEmbeddingsV3ForMaskedLM",
    preset="jina_embeddings_v3",
    since=lambda config: "5.4",
    fields=(
        *bert_fields(
            norm_eps=1e-5, vocab_size=250_002, max_position_embeddings=8194, pad_token_id=1, **LARGE
        ),
        same("type_vocab_size", 1),
        same("hidden_act", "gelu"),
        Field("bos_token_id", ("cls_token_id",), 0),
        Field("eos_token_id", ("sep_token_id",), 2),
    ),
    tensors={
        **bert_embeddings("roberta"),
        **llama_blocks("roberta.layers.*", mlp_input=("fc1",), mlp_output="fc2"),
        **roberta_head(),
    },
    accepts={"rope_scaling": (None,)},
    at_least=NEEDS_TYPES,
    tied_bias="lm_head.bias",
    renamed={
        **GAMMA_BETA,
        r"\bemb_ln": "embeddings.LayerNorm",
        r"encoder\.layers": "layers",
        r"mixer\.out_proj": "self_attn.o_proj",
        r"norm1\b": "post_attention_layernorm",
        r"norm2\b": "post_mlp_layernorm",
    },
    fused={"mixer.Wqkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
    ignored=("roberta.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(20_000.0),
)
