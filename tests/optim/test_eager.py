import subprocess
import sys
from typing import Any

import torch
from torch import nn

from maskwright.optim.eager import AdamW


def group(model: nn.Linear) -> list[dict[str, Any]]:
    return [{"params": [model.weight], "weight_decay": 0.3}, {"params": [model.bias]}]


def test_adamw_is_torchs() -> None:
    found, expected = nn.Linear(5, 3), nn.Linear(5, 3)
    expected.load_state_dict(found.state_dict())
    ours = AdamW(group(found), lr=0.1, fused=True)
    theirs = torch.optim.AdamW(group(expected), lr=0.1, fused=True)
    for step in range(3):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        for model, optimizer in ((found, ours), (expected, theirs)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    assert torch.equal(found.weight, expected.weight)
    assert torch.equal(found.bias, expected.bias)
    ours.zero_grad()
    assert found.weight.grad is None


def test_a_step_of_all_our_optimizers_does_not_import_torchs_compiler() -> None:
    code = """
import sys, torch
from maskwright.optim.build import build_optimizers
from maskwright.optim.config import OptimConfig
model = torch.nn.Linear(4, 4)
optimizers = build_optimizers(OptimConfig(name="muon"), model.named_parameters(), {"weight": 1})
model(torch.ones(4)).sum().backward()
optimizers.step()
optimizers.zero_grad()
assert len(optimizers.optimizers) == 2
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
