"""New rows are the mean of the rows that spelled their tokens; old ones stay."""

import pytest
import torch

from maskwright.model.init import grow_vocabulary
from tests.models import small_model

WORDS, DECODER, BIAS = (
    "encoder.embeddings.word.weight",
    "head.decoder.weight",
    "head.decoder.bias",
)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_means(tied: bool) -> None:
    model = small_model(preset="modernbert", tie_word_embeddings=tied)
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    tensors[BIAS].normal_()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    pieces = {60: [7], 64: [7, 9], 65: [10, 11, 12]}
    grown = grow_vocabulary(tensors, 128, pieces)
    tables = {WORDS, BIAS} if tied else {WORDS, DECODER, BIAS}
    for name, old in kept.items():
        assert torch.equal(tensors[name], old)
        if name not in tables:
            assert torch.equal(grown[name], old)
            continue
        assert grown[name].shape == (128, *old.shape[1:])
        assert torch.equal(grown[name][:60], old[:60])
        assert torch.equal(grown[name][61:64], old[61:])
        assert torch.equal(grown[name][60], old[7])
        assert torch.allclose(grown[name][64], (old[7] + old[9]) / 2)
        assert torch.allclose(grown[name][65], (old[10] + old[11] + old[12]) / 3)
        assert torch.allclose(grown[name][66:], old.mean(0).expand(62, *old.shape[1:]))


def test_a_vocabulary_may_have_room_already() -> None:
    model = small_model()
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    grown = grow_vocabulary(tensors, 64, {63: [5, 6]})
    assert torch.equal(grown[WORDS][:63], tensors[WORDS][:63])
    assert torch.equal(grown[WORDS][63], tensors[WORDS][5:7].mean(0))
