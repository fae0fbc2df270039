import pytest
import torch
import torch.nn.functional as F

from maskwright.model.masked_lm import TwoLayerTransform
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


@pytest.mark.parametrize("preset", ["bert", "eurobert"])
def test_candidates_and_labels_have_the_logits_of_the_whole_vocabulary(preset: str) -> None:
    head, hidden = tiny_model(preset=preset).head, torch.randn(3, 32)
    if head.decoder.bias is not None:
        head.decoder.bias.data.normal_()
    ids, labels = torch.tensor([7, 2, 9, 30]), torch.tensor([2, 11, 30])
    offsets = torch.tensor([0.0, 0.0, 1.5, 1.5])
    whole, chosen = head(hidden), head.choose(hidden, ids, offsets, labels)
    torch.testing.assert_close(chosen[:, -1], whole[torch.arange(3), labels])
    expected = whole[:, ids] + offsets
    expected[0, 1] = expected[2, 3] = -torch.inf  # the labels themselves
    torch.testing.assert_close(chosen[:, :-1], expected)
