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


def test_heads_have_what_their_configuration_says() -> None:
    names = {
        preset: {
            name.removeprefix("head.")
            for name, _ in tiny_model(preset=preset).named_parameters()
            if name.startswith("head.")
        }
        for preset in ("bert", "eurobert", "ultrabert")
    }
    transform = {
        f"transform.{part}.{kind}" for part in ("dense", "norm") for kind in ("weight", "bias")
    }
    assert names["bert"] == {*transform, "decoder.bias"}
    assert names["eurobert"] == {"decoder.weight"}
    assert names["ultrabert"] == {
        "transform.input.weight",
        "transform.output.weight",
        "decoder.weight",
    }
