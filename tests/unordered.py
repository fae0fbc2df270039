"""Operators that add in the order of threads, and the bits of what several threads compute."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# With accumulate=True these add with atomics on a CPU: the gradient of indexing is one of them.
_ACCUMULATING = {"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put", "put", "put_"}


class UnorderedOperators(TorchDispatchMode):
    """Collects the operators that add floating-point numbers in the order of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.num_operators, self.found = 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_operators += 1
        schema = func._schema
        values = {one.name: value for one, value in zip(schema.arguments, args, strict=False)}
        accumulates = {**values, **(kwargs or {})}.get("accumulate", False)
        name = schema.name.removeprefix("aten::")
        if name in _ACCUMULATING and accumulates and args[0].is_floating_point():
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def threads(number: int) -> Generator[None]:
    """Compute with this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def hash_weights(model: nn.Module) -> str:
    """The hash of all weights."""
    parts = [p.detach().contiguous().numpy().tobytes() for p in model.parameters()]
    return sha256(b"".join(parts)).hexdigest()


def assert_same_bits(
    work: Callable[[], str], numbers: Sequence[int] = (2, 4), repeats: int = 2
) -> None:
    """`work` returns the same each time with so many threads; no operator is unordered."""
    for number in numbers:
        with threads(number):
            assert len({work() for _ in range(repeats)}) == 1, f"{number} threads"
    with UnorderedOperators() as operators:
        work()
    assert operators.num_operators > 100
    assert operators.found == []
