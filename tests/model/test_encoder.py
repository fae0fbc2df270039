"""The encoder on packed tokens."""

import pytest
import torch

from maskwright.attention_context import context_from_lengths
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.masked_lm import MaskedLanguageModel
from tests.model.helpers import RAGGED_ROWS, pack, random_ids, tiny_config, tiny_model
from tests.models import small_model

VARIANTS = {
    "bert": {"preset": "bert"},
    "modernbert": {"preset": "modernbert", "local_attention": 4},
    "eurobert": {"preset": "eurobert"},
    "sinusoidal": {"positions": "sinusoidal", "norm": "rmsnorm"},
    "qk norm": {"qk_norm": True, "hidden_act": "relu2"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_packing_equals_one_segment_at_a_time(variant: str) -> None:
    model, context, ids = tiny_model(**VARIANTS[variant]), pack(RAGGED_ROWS), random_ids(36)
    with torch.no_grad():
        packed = model(ids, context, torch.arange(36))
        start = 0
        for length in (length for row in RAGGED_ROWS for length in row):
            alone = context_from_lengths([length])
            single = model(ids[start : start + length], alone, torch.arange(length))
            torch.testing.assert_close(packed[start : start + length], single, atol=1e-5, rtol=0)
            start += length


def test_only_masked_positions_reach_the_head() -> None:
    model, context, ids = tiny_model(), context_from_lengths([8]), random_ids(8)
    seen = []
    model.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    with torch.no_grad():
        some = model(ids, context, torch.tensor([6, 2, 2]))
        whole = model(ids, context, torch.arange(8))
    assert seen == [(3, 32), (8, 32)]
    torch.testing.assert_close(some, whole[[6, 2, 2]])


def test_dropout_works_only_in_training() -> None:
    fields = {"embedding_dropout": 0.2, "attention_dropout": 0.2, "hidden_dropout": 0.2}
    model = tiny_model(**fields, mlp_dropout=0.2)
    context, ids, places = context_from_lengths([8]), random_ids(8), torch.arange(8)
    plain = tiny_model()
    assert torch.equal(model(ids, context, places), plain(ids, context, places))
    model.train()
    assert not torch.allclose(model(ids, context, places), plain(ids, context, places))


@pytest.mark.parametrize("preset", ["bert", "modernbert", "eurobert"])
def test_tracing_for_compilation_finds_one_whole_graph(preset: str) -> None:
    """Graph capture without code generation, which would take a minute."""
    two = {"num_hidden_layers": 2, "local_attention": 4}
    model = MaskedLanguageModel(tiny_config(preset=preset, **two))
    graphs = []

    def keep(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(model.eval(), backend=keep, fullgraph=True, dynamic=False)
    places = torch.arange(5)
    for seed, rows in enumerate((RAGGED_ROWS, ((6, 6), (3, 9), (2, 10)))):
        ids, context = random_ids(36, seed), pack(rows)  # another number of segments, same shapes
        torch.testing.assert_close(compiled(ids, context, places), model(ids, context, places))
    assert len(graphs) == 1


def test_bf16_autocast_stays_near_fp32() -> None:
    model, context, ids = tiny_model(qk_norm=True), pack(RAGGED_ROWS), random_ids(36)
    with torch.no_grad():
        exact = model(ids, context, torch.arange(36))
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(ids, context, torch.arange(36))
    assert (rough.float() - exact).abs().max() < 0.1 * exact.std()


@pytest.mark.parametrize("variant", VARIANTS)
def test_output_positions_have_the_vectors_that_they_have_among_all(variant: str) -> None:
    encoder, context = tiny_model(**VARIANTS[variant]).encoder, pack(RAGGED_ROWS)
    ids, wanted = random_ids(36), torch.tensor([30, 3, 3, 0])
    with torch.no_grad():
        everything = encoder(ids, context)
        torch.testing.assert_close(
            encoder(ids, context, output_positions=wanted), everything[wanted], atol=1e-5, rtol=0
        )
        assert encoder(ids, context, output_positions=wanted[:0]).shape == (0, 32)


@pytest.mark.parametrize(
    ("preset", "inputs"), [("modernbert", {"encoder.blocks.0.mlp.input.weight": 2}), ("bert", {})]
)
def test_count_stacked_matrices_counts_qkv_and_gated_inputs(
    preset: str, inputs: dict[str, int]
) -> None:
    counts = count_stacked_matrices(small_model(preset=preset, num_hidden_layers=1))
    assert counts == {"encoder.blocks.0.attention.qkv.weight": 3, **inputs}
