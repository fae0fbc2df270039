import torch
import torch.nn.functional as F

from maskwright.model.heads import TwoLayerTransform
from tests.model.helpers import tiny_model


def test_a_head_of_two_layers_is_its_equation() -> None:
    model = tiny_model(preset="ultrabert", prediction_head_size=24, head_bias=True)
    head, hidden = model.head, torch.randn(5, 32)
    assert isinstance(head.transform, TwoLayerTransform)
    first, second = head.transform.input, head.transform.output
    assert (first.out_features, second.out_features) == (24, 32)
    inner = F.gelu(F.linear(hidden, first.weight, first.bias), approximate="tanh")
    outer = F.gelu(F.linear(inner, second.weight, second.bias), approximate="tanh")
    torch.testing.assert_close(head(hidden), F.linear(outer, head.decoder.weight))


def names_in_head(preset: str) -> set[str]:
    head = tiny_model(preset=preset, tie_word_embeddings=False).head
    return {name for name, _ in head.named_parameters()}


def test_heads_have_what_their_configuration_says() -> None:
    parts = ("dense.weight", "dense.bias", "norm.weight", "norm.bias")
    decoder = {"decoder.weight"}
    assert names_in_head("bert") == {*decoder, "decoder.bias", *(f"transform.{p}" for p in parts)}
    assert names_in_head("eurobert") == decoder
    two = {"transform.input.weight", "transform.output.weight"}
    assert names_in_head("ultrabert") == {*decoder, *two}
