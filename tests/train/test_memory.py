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
if {keep}:
    assert keep_freed_memory()
def count_faults():
    blocks = [torch.ones(4 << 20) for _ in range(8)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    count_faults()
before = count_faults()
print(count_faults() - before)
"""


def count_page_faults(keep: bool) -> int:
    """Of eight tensors of 16 MB that were there a moment before, in a process of its own."""
    program = [sys.executable, "-c", _COUNT_FAULTS.format(keep=keep)]
    # So that without our help it gives back every block, and not just when it happens to.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    result = subprocess.run(program, env=environment, stdout=subprocess.PIPE, check=True)
    return int(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_used_again() -> None:
    assert count_page_faults(keep=True) < 100 < count_page_faults(keep=False)


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
