import bz2
import gzip
import lzma
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
import zstandard

from maskwright.corpus.unpack import BLOCK_BYTES, Compression, read_unpacked
from maskwright.errors import CorpusError
from tests.corpus.helpers import write

COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}
TEXT = "".join(f"The {number}th line of a text.\n" for number in range(5_000)).encode()


def read(path: Path, compression: Compression) -> bytes:
    return b"".join(read_unpacked(path, compression, path.name))


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_every_compression_reads_back(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "x"
    compress = COMPRESSORS[compression]
    for content in (b"", b"x", TEXT, bytes(3 * BLOCK_BYTES)):
        write(path, compress(content))
        blocks = list(read_unpacked(path, compression, "x"))
        assert b"".join(blocks) == content
        assert all(len(block) == BLOCK_BYTES for block in blocks[:-1])
    write(path, compress(TEXT) + compress(b"second member"))
    assert read(path, compression) == TEXT + b"second member"


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / f"x{compression}"
    whole = COMPRESSORS[compression](TEXT)
    for length in (1, 5, len(whole) // 2, len(whole) - 1):
        write(path, whole[:length])
        with pytest.raises(CorpusError, match=f"^x{compression} cannot be decompressed: "):
            read(path, compression)


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
def test_a_decompression_bomb_takes_little_memory(tmp_path: Path, compression: Compression) -> None:
    path = tmp_path / "bomb"
    write(path, COMPRESSORS[compression](bytes(40_000_000)))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        size = sum(len(block) for block in read_unpacked(path, compression, "bomb"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == 40_000_000
    assert peak < 30_000_000


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="x cannot be read: No such file"):
        list(read_unpacked(tmp_path / "x", ".gz", "x"))


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_streams_follow_one_another_with_padding_between(
    tmp_path: Path, suffix: Compression
) -> None:
    pack = COMPRESSORS[suffix]
    content = pack(b"one ") + bytes(200_000) + pack(b"two ") + pack(b"three") + bytes(8)
    (tmp_path / "x").write_bytes(content)
    assert b"".join(read_unpacked(tmp_path / "x", suffix, "x")) == b"one two three"
    (tmp_path / "x").write_bytes(content + b"rubbish")
    with pytest.raises(CorpusError, match="x cannot be decompressed"):
        list(read_unpacked(tmp_path / "x", suffix, "x"))


def test_a_part_is_its_ranges_of_the_file(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "x", b"0123456789"))
    assert b"".join(read_unpacked(path, "", "x", ((0, 2), (5, 8)))) == b"01567"
    with pytest.raises(CorpusError, match=r"^x cannot be read: .* 12\b"):
        list(read_unpacked(path, "", "x", ((0, 2), (5, 12))))
    unpacked = [b"words ", os.urandom(1 << 20), b"and more"]
    streams = [bz2.compress(content) for content in unpacked]
    first, second, third = accumulate(map(len, streams))
    path.write_bytes(b"".join(streams))
    part = read_unpacked(path, ".bz2", "x", ((0, first), (second, third)))
    assert b"".join(part) == b"words and more"
    assert sum(map(len, read_unpacked(path, ".bz2", "x"))) == sum(map(len, unpacked))
