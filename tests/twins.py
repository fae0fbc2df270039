"""Small models of transformers with every parameter random, and how far ours are from them.

The parity tests and `python -m benchmarks interchange` measure with these: the same segments, each
in a row of its own with padding behind it, as transformers wants them, and packed, as we train.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maskwright.attention_context import AttentionContext
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.families import FAMILIES

VOCAB_SIZE = 64
NUM_SPECIAL = 5
ROW = 16
TOLERANCE = 1e-5
Rows = Sequence[Sequence[int]]  # for each row the lengths of its segments
PADDED: Rows = ((13,), (1,), (16,), (7,))
PACKED: Rows = ((13, 1), (16,), (7,))

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
# NeoBERT's own class rejects no field, but has other names for these.
_NEOBERT = {"max_length": 32, "norm_eps": 1e-5}
# Buckets of one distance up to 3, and of several up to 31.
_DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 6,
}
_DISTILBERT = {
    "dim": 32,
    "n_layers": 4,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
_ESM = {"position_embedding_type": "rotary", "mask_token_id": 4}
_CLS_SEP = {"cls_token_id": 2, "sep_token_id": 3}
_UNTIED = {"tie_word_embeddings": False}
_LOCAL = {"layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"]}


class Twin(NamedTuple):
    """A configuration of one published class: its ``model_type`` and fields as it calls them."""

    model_type: str
    fields: dict[str, Any]


TWINS: dict[str, Twin] = {
    "bert": Twin("bert", {}),
    "bert untied": Twin("bert", {**_UNTIED, "hidden_act": "gelu_new", "pad_token_id": 3}),
    "modernbert": Twin("modernbert", {**_CLS_SEP, "local_attention": 8}),
    "modernbert layers": Twin(
        "modernbert",
        {
            **_CLS_SEP,
            **_LOCAL,
            "local_attention": 6,
            "norm_bias": True,
            "classifier_bias": True,
            "classifier_activation": "silu",
            "hidden_activation": "swish",
        },
    ),
    "modernbert every second layer": Twin(
        "modernbert",
        {
            **_CLS_SEP,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
            "local_attention": 6,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    "eurobert": Twin("eurobert", {"mask_token_id": 4}),
    "eurobert tied": Twin(
        "eurobert", {"mask_token_id": 4, "tie_word_embeddings": True, "mlp_bias": True}
    ),
    "roberta": Twin("roberta", {}),
    "roberta untied": Twin("roberta", {**_UNTIED, "pad_token_id": 3, "hidden_act": "relu"}),
    "xlm-roberta": Twin("xlm-roberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    "camembert": Twin("camembert", {"pad_token_id": 1}),
    "distilbert": Twin("distilbert", {}),
    "distilbert untied": Twin("distilbert", {**_UNTIED, "activation": "relu"}),
    "megatron-bert": Twin("megatron-bert", {}),
    "megatron-bert untied": Twin("megatron-bert", {**_UNTIED, "hidden_act": "gelu_new"}),
    "roberta-prelayernorm": Twin("roberta-prelayernorm", {"pad_token_id": 1}),
    "roberta-prelayernorm untied": Twin("roberta-prelayernorm", _UNTIED),
    "esm": Twin("esm", _ESM),
    "esm embedding norm": Twin(
        "esm", {**_ESM, **_UNTIED, "emb_layer_norm_before": True, "rope_theta": 77.0}
    ),
    "jina_embeddings_v3": Twin("jina_embeddings_v3", {"pad_token_id": 1}),
    "jina_embeddings_v3 untied": Twin(
        "jina_embeddings_v3", {**_UNTIED, "type_vocab_size": 2, "hidden_act": "silu"}
    ),
    "nomic_bert": Twin("nomic_bert", {}),
    "nomic_bert untied": Twin("nomic_bert", {**_UNTIED, "hidden_act": "gelu"}),
    "gte": Twin("gte", {"pad_token_id": 1}),
    "gte without types": Twin(
        "gte",
        {
            **_UNTIED,
            "type_vocab_size": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
        },
    ),
    "ultrabert": Twin("ultrabert", {"prediction_head_size": 24, "sliding_window": 3}),
    "ultrabert tied": Twin(
        "ultrabert",
        {
            **_LOCAL,
            "prediction_head_size": 40,
            "sliding_window": 2,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
        },
    ),
    "neobert": Twin("neobert", _NEOBERT),
    "neobert of another inner width": Twin(
        "neobert", {**_NEOBERT, "intermediate_size": 50, "pad_token_id": 3, "norm_eps": 1e-6}
    ),
    "deberta-v2": Twin("deberta-v2", _DEBERTA),
    "deberta-v2 with the head of v3": Twin(
        "deberta-v2",
        {**_DEBERTA, "legacy": False, "type_vocab_size": 2, "pos_att_type": "c2p|p2c"},
    ),
    "deberta-v2 untied": Twin(
        "deberta-v2",
        {**_DEBERTA, **_UNTIED, "hidden_act": "relu", "max_relative_positions": -1},
    ),
    "electra": Twin("electra", {"embedding_size": 24}),
    "electra as wide as its layers": Twin(
        "electra", {**_UNTIED, "embedding_size": 32, "hidden_act": "relu"}
    ),
}


def list_twins() -> Iterator[str]:
    """Yield the names of the twins whose class the installed transformers has.

    NeoBERT's is `tests.neobert`, which transformers then knows by its ``model_type``.
    """
    import transformers

    from tests import neobert

    neobert.register()
    for name, twin in TWINS.items():
        family = FAMILIES[twin.model_type]
        if family.code or hasattr(transformers, family.architecture):
            yield name


def build_twin(name: str, seed: int = 1, **changed: Any) -> Any:
    """Return the random model of transformers in evaluation mode, with `changed` fields."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    from tests import neobert

    neobert.register()
    model_type, fields = TWINS[name]
    sizes = _DISTILBERT if model_type == "distilbert" else _SIZES
    fields = {**sizes, "vocab_size": VOCAB_SIZE, **fields, **changed}
    model = AutoModelForMaskedLM.from_config(AutoConfig.for_model(model_type, **fields))
    randomize(model, seed)
    return model.eval()


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Draw every parameter, so that no bias is 0 and no norm is 1 in a comparison."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        is_norm = name.lower().endswith(("norm.weight", ".ln.weight"))
        parameter.normal_(1.0 if is_norm else 0.0, 0.15, generator=generator)


def random_ids(count: int, seed: int = 0) -> Tensor:
    """Return ordinary token ids, [count]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(NUM_SPECIAL, VOCAB_SIZE, (count,), generator=generator)


def pack(rows: Rows) -> AttentionContext:
    """Return the context of rows that hold segments of the given lengths, equal in sum."""
    lengths = [length for row in rows for length in row]
    return AttentionContext(
        positions=torch.cat([torch.arange(length) for length in lengths]),
        segment_ids=torch.cat(
            [torch.full((length,), n) for row in rows for n, length in enumerate(row)]
        ).int(),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        max_seqlen=sum(rows[0]),
        row_length=sum(rows[0]),
    )


def fill_rows(rows: Rows, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Return ids [R, ROW], the same tokens in order for all `rows`, and which are no padding."""
    real = torch.arange(ROW) < torch.tensor([sum(row) for row in rows])[:, None]
    ids = torch.full(real.shape, pad_token_id)
    ids[real] = random_ids(int(real.sum()))
    return ids, real


@torch.no_grad()
def their_logits(theirs: Any, types: Tensor | None = None) -> Tensor:
    """Return the logits [tokens, V] of a padded batch."""
    ids, real = fill_rows(PADDED, theirs.config.pad_token_id)
    extra = {} if types is None else {"token_type_ids": types.expand(len(ids), -1)}
    return theirs.eval()(input_ids=ids, attention_mask=real.long(), **extra).logits[real]


@torch.no_grad()
def our_logits(
    ours: MaskedLanguageModel, rows: Rows = PADDED, types: Tensor | None = None
) -> Tensor:
    """Return the logits [tokens, V] of such rows; `types` [ROW] by position in a segment."""
    ids, real = fill_rows(rows, ours.config.pad_token_id)
    tails = [(*row, ROW - sum(row)) if sum(row) < ROW else row for row in rows]
    context = pack(tails)
    by_token = None if types is None else types[context.positions]
    return ours.eval()(ids.flatten(), context, real.flatten().nonzero()[:, 0], by_token)


def largest_difference(
    ours: MaskedLanguageModel, theirs: Any, types: Tensor | None = None
) -> float:
    """Return the largest difference of their logits, padded, and ours, padded and packed.

    Raises:
        ValueError: logits so small that the comparison would say nothing.
    """
    expected = their_logits(theirs, types)
    if expected.std() < 0.1:
        raise ValueError("the logits are too small to be compared")
    found = [our_logits(ours, rows, types) for rows in (PADDED, PACKED)]
    return max((logits - expected).abs().max().item() for logits in found)
