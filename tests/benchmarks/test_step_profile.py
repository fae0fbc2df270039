"""Operators are timed where they stand, and only while the clock records."""

import torch

from benchmarks.step_profile import REST, OperatorClock


def test_operators_are_added_up_by_kind_forward_and_backward() -> None:
    weight = torch.randn(8, 8, requires_grad=True)
    with OperatorClock() as clock:
        (torch.randn(4, 8) @ weight).sum().backward()
        assert not clock.seconds
        clock.recording = True
        (torch.randn(4, 8) @ weight).sum()
        forward = clock.seconds["matrix products"]
        (torch.randn(4, 8) @ weight).sum().backward()
    assert 0 < forward < clock.seconds["matrix products"]
    assert clock.seconds[REST] > 0
