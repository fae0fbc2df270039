from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from maskwright.attention_context import AttentionContext
from maskwright.errors import ConfigError
from maskwright.model.attention import RelativePositions, attend, bucket_distances
from maskwright.model.config import AttentionBackend
from tests.model.helpers import pack, random_ids, tiny_config, tiny_model
from tests.model.test_attention import CONTEXTS, draw_qkv


def draw_relative(row_length: int) -> list[Tensor]:
    drawn = torch.randn(2, 2 * row_length + 1, 2, 8, generator=torch.Generator().manual_seed(1))
    return [x.requires_grad_() for x in drawn]


def attend_with_gradients(
    context: AttentionContext, window: int | None, backend: AttentionBackend
) -> list[Tensor]:
    inputs = [*draw_qkv(len(context.positions)), *draw_relative(context.row_length)]
    q, k, v, *relative = inputs
    out = attend(q, k, v, context, window, backend=backend, relative=(relative[0], relative[1]))
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), inputs)]


@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CONTEXTS)
def test_products_of_rows_equal_the_reference(name: str, causal: bool, window: int | None) -> None:
    context = replace(CONTEXTS[name], is_causal=causal)
    expected = attend_with_gradients(context, window, "reference")
    found = attend_with_gradients(context, window, "products")
    for theirs, ours in zip(expected, found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("buckets", "longest"), [(256, 512), (256, 4096), (32, 64), (6, 32), (2, 9)]
)
def test_buckets_are_those_of_transformers(buckets: int, longest: int) -> None:
    distances = torch.arange(1 - longest, longest)
    theirs = make_log_bucket_position(distances, buckets, longest).long()
    ours = bucket_distances(distances, buckets, longest)
    assert torch.equal(ours, theirs.clamp(-buckets, buckets - 1))
    assert ours.unique().numel() > 2


@pytest.mark.parametrize("length", [1, 2, 16, 40])
def test_every_distance_has_a_vector(length: int) -> None:
    """In rows that are longer than the model too, if they hold several segments."""
    positions = RelativePositions(tiny_config(preset="deberta-v2", position_buckets=4))
    assert positions(length).shape == (2 * length + 1, 32)


@pytest.mark.parametrize("preset", ["deberta-v2", "modernbert"])
def test_a_text_is_encoded_alike_wherever_it_is_packed(preset: str) -> None:
    extra = {} if preset == "deberta-v2" else {"positions": "relative", "qk_norm": True}
    encoder = tiny_model(preset=preset, position_buckets=6, local_attention=6, **extra).encoder
    first, second = random_ids(7), random_ids(5, seed=1)
    with torch.no_grad():
        packed = encoder(torch.cat([second, first]), pack(((5, 7),)))
        torch.testing.assert_close(packed[5:], encoder(first, pack(((7,),))), atol=1e-5, rtol=1e-5)
        turned = encoder(first.flip(0), pack(((7,),))).flip(0)
    assert (packed[5:] - turned).abs().max() > 1e-2


@pytest.mark.parametrize("backend", ["sdpa", "varlen"])
def test_a_fused_kernel_is_refused(backend: str) -> None:
    with pytest.raises(ConfigError) as error:
        tiny_config(preset="deberta-v2", attention_backend=backend, attention_dropout=0.0)
    assert error.value.field == "attention_backend"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"preset": "bert", "position_buckets": 32}, "position_buckets"),
        ({"preset": "deberta-v2", "position_buckets": 1}, "position_buckets"),
        ({"preset": "deberta-v2", "rope_theta": 10.0}, "rope_theta"),
    ],
)
def test_positions_without_effect_or_buckets_are_refused(
    fields: dict[str, object], field: str
) -> None:
    with pytest.raises(ConfigError) as error:
        tiny_config(**fields)
    assert error.value.field == field
