import pytest
import torch
from torch import nn

from maskwright.train.weight_average import WeightAverage


def make_model(value: float) -> nn.Linear:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def test_the_average_follows_its_equation() -> None:
    model = make_model(0.0)
    average = WeightAverage(model, decay=0.9)
    expected = 0.0
    for step in range(200):
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.set_step(step)
        average.update(model)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert average.averages["weight"][0, 0].item() == pytest.approx(expected, rel=1e-5)
    # In the end it runs behind by decay / (1 - decay) steps.
    assert 199 - expected == pytest.approx(9, abs=0.1)


def test_within_the_context_the_model_has_the_averages() -> None:
    model = make_model(1.0)
    average = WeightAverage(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(3.0)
    pointer = model.weight.data_ptr()
    with pytest.raises(ValueError, match=r"saw 1\.0"), average.applied(model):
        raise ValueError(f"saw {model.weight[0, 0].item()}")
    assert model.weight[0, 0].item() == 3.0  # put back after an error, too
    assert model.weight.data_ptr() == pointer  # in place: optimizers and graphs hold the tensors
    assert average.averages["weight"][0, 0].item() == 1.0
