"""What is compiled: a shallow loss as a whole, a deep one block by block; no validation."""

from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from maskwright.distributed.world import ALONE
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedTokensLoss
from maskwright.pretraining import build
from maskwright.pretraining.build import distribute
from maskwright.pretraining.validation import not_compiling
from maskwright.train.config import TrainConfig
from tests.models import small_config
from tests.objectives.test_distillation import batch_of


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The graphs that are compiled, which run as they are."""
    found: list[object] = []

    def take(graph: Any, _: object) -> Any:
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(build, "_MAX_WHOLE_BLOCKS", 2)
    compile_ = vars(torch)["compile"]
    monkeypatch.setattr(build, "_compile", lambda f, **more: compile_(f, backend=take, **more))
    whole: Any = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda m, **more: whole(m, backend=take, **more))
    torch._dynamo.reset()
    return found


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # by torch, of what enters a block
@pytest.mark.parametrize(("num_layers", "is_checkpointed"), [(2, False), (2, True), (3, False)])
def test_deep_models_are_compiled_block_by_block(
    num_layers: int, is_checkpointed: bool, graphs: list[object]
) -> None:
    torch.manual_seed(0)
    model = MaskedLanguageModel(small_config(num_hidden_layers=num_layers))
    loss, batch = MaskedTokensLoss(model), batch_of()
    expected = loss(batch)
    config = TrainConfig(max_steps=1, activation_checkpointing=is_checkpointed)
    parallel = distribute(config, loss, model, ALONE, torch.device("cpu"), compiles=True)
    with not_compiling():
        torch.testing.assert_close(parallel.loss(batch), expected)
    assert not graphs
    torch.testing.assert_close(parallel.loss(batch), expected)
    assert graphs
    is_wrapped = all("forward" in vars(block) for block in model.encoder.blocks)
    assert is_wrapped == (num_layers == 3 or is_checkpointed)
