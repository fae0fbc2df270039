"""What is compiled: a shallow model as a whole, a deep one block by block."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from maskwright.distributed.world import ALONE
from maskwright.model.encoder import EncoderBlock
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedLM
from maskwright.pretraining.build import distribute
from maskwright.train.config import TrainConfig
from tests.models import small_config
from tests.objectives.test_distillation import batch_of


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # by torch, of what enters a block
@pytest.mark.parametrize(("num_layers", "compiled"), [(6, [MaskedLM]), (7, [EncoderBlock] * 7)])
def test_deep_models_are_compiled_block_by_block(
    num_layers: int, compiled: list[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[type] = []
    compile_ = nn.Module.compile

    def record(module: nn.Module, **more: Any) -> None:
        found.append(type(module))
        compile_(module, backend="eager", **more)

    monkeypatch.setattr(nn.Module, "compile", record)
    torch.manual_seed(0)
    model = MaskedLanguageModel(small_config(num_hidden_layers=num_layers))
    loss, batch = MaskedLM(model), batch_of()
    expected = loss(batch)
    build = partial(distribute, TrainConfig(max_steps=1), loss, model, ALONE)
    parallel = build(torch.device("cpu"), compiles=True)
    assert found == compiled
    torch.testing.assert_close(parallel.objective(batch), expected)
