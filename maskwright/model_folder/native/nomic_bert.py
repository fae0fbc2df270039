"""NomicBertForMaskedLM. Nussbaum et al., "Nomic Embed", 2024."""

from maskwright.model_folder.native.family import Family, Field, same
from maskwright.model_folder.native.shared_names import (
    GAMMA_BETA,
    NEEDS_TYPES,
    bert_embeddings,
    bert_fields,
    bert_head,
    llama_blocks,
    read_one_rope,
    write_one_rope,
)

# Published folders have fields of the authors' own class, which can compute more. Differences that
# also change the tensors are noticed there.
_OLDER = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "max_trained_positions",
    "layer_norm_eps": "layer_norm_epsilon", "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
}  # fmt: skip
_COMPUTED = {
    "rope_scaling": (None,), "rotary_scaling_factor": (None,), "rotary_emb_scale_base": (None,),
    "rotary_emb_fraction": (1.0,), "rotary_emb_interleaved": (False,), "prenorm": (False,),
    "causal": (False,), "activation_function": ("swiglu",),
}  # fmt: skip
NOMIC_BERT = Family(
    model_type="nomic_bert",
    architecture="NomicBertForMaskedLM",
    preset="nomic_bert",
    since=lambda config: "5.5",
    fields=(
        *bert_fields(dropout=(0.0, 0.0), vocab_size=30_528, max_position_embeddings=2048),
        same("type_vocab_size", 2),
        Field("hidden_act", ("hidden_act", "head_act"), "silu"),
    ),
    tensors={
        **bert_embeddings("nomic_bert"),
        **llama_blocks("nomic_bert.layers.*"),
        **bert_head(norm="layer_norm"),
    },
    accepts=_COMPUTED,
    older=_OLDER,
    at_least=NEEDS_TYPES,
    tied_bias="cls.predictions.bias",
    renamed={
        **GAMMA_BETA,
        r"\bemb_ln": "embeddings.LayerNorm",
        r"encoder\.layers": "layers",
        r"attn\.out_proj": "self_attn.o_proj",
        r"fc11\b": "up_proj",
        r"fc12\b": "gate_proj",
        r"fc2\b": "down_proj",
        r"norm1\b": "post_attention_layernorm",
        r"norm2\b": "post_mlp_layernorm",
    },
    fused={".attn.Wqkv": (".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj")},
    ignored=("nomic_bert.pooler.*", "*.inv_freq"),
    write_more=write_one_rope,
    read_more=read_one_rope(1_000.0),
)
