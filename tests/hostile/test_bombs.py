"""Small files that unfold to gigabytes: refused, in bounded memory and time."""

import bz2
import gzip
import lzma
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

_BLOCK, _BLOCKS = b"0" * (1 << 22), 512  # two gigabytes on one line
_LIMIT_MB = 1024

# Streams one after another, as packing so much at once takes long.
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", _PACKERS)
def test_a_decompression_bomb_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb.txt.{suffix}"
    path.write_bytes(_PACKERS[suffix](_BLOCK) * _BLOCKS)
    assert path.stat().st_size < 20_000_000
    result = subprocess.run(
        [sys.executable, "-m", "maskwright", "prepare", str(path), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    assert "unfolds to more than 500 times its size" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert peak_mb < _LIMIT_MB
