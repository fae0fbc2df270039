import ctypes
import os
import platform
import subprocess
import sys

import pytest

from maskwright.train.device import keep_freed_memory

_COUNT_FAULTS = """
import resource, torch
from maskwright.train.device import keep_freed_memory
def allocate():
    blocks = [torch.ones(4 << 20) for _ in range(8)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def count_faults():
    for _ in range(3):
        allocate()
    before = allocate()
    return allocate() - before
print(count_faults())
assert keep_freed_memory()
print(count_faults())
"""


def count_page_faults() -> tuple[int, int]:
    """Of eight tensors of 16 MB that were there a moment before, without our help and with it.

    In a process of its own.
    """
    # So that without our help it gives back every block, and not just when it happens to.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    program = [sys.executable, "-c", _COUNT_FAULTS]
    result = subprocess.run(program, env=environment, stdout=subprocess.PIPE, check=True)
    without, kept = map(int, result.stdout.split())
    return without, kept


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_used_again() -> None:
    without, kept = count_page_faults()
    assert kept < 100 < without


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
