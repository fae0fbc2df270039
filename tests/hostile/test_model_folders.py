"""Model folders that lie about their size, name files elsewhere, or cannot be computed with."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from maskwright.errors import ModelFolderError
from maskwright.inference.fill_mask import FillMask
from maskwright.model_folder.folder import open_model
from tests.hostile.fuzzing import seeds
from tests.hostile.sandbox import run_limited

_OPEN = """
import sys
from maskwright.model_folder.folder import open_model
from maskwright.errors import ModelFolderError
for folder in sys.argv[1:]:
    try: open_model(folder)
    except ModelFolderError as error: print(error)
"""
WORDS = "model.embeddings.tok_embeddings.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(seeds.model_folder("modernbert"), tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, **fields: Any) -> None:
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**raw, **fields}), encoding="utf-8")


def write_header(path: Path, header: dict[str, Any], num_bytes: int) -> None:
    """A safetensors file of nothing but zeros, which takes no room on disk."""
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + num_bytes)


def error_of(folder: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        open_model(folder)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_a_config_that_asks_for_terabytes(folder: Path) -> None:
    folders: list[str] = []
    for fields in (
        {"hidden_size": 10**9},
        {"hidden_size": 100_000},
        {"vocab_size": 2**24},
        {"num_hidden_layers": 999, "layer_types": None},
    ):
        folders.append(str(shutil.copytree(folder, folder.parent / str(len(folders)))))
        edit_config(Path(folders[-1]), **fields)
    lines = run_limited(_OPEN, *folders).splitlines()
    assert "hidden_size = 1000000000 must be at most" in lines[0]
    assert "(64, 100000)" in lines[1]
    assert "(16777216, 8)" in lines[2]
    assert "is missing from the weights" in lines[3]


def test_tensors_that_nobody_asked_for_are_not_read(folder: Path) -> None:
    giant = {"dtype": "F32", "shape": [4, 10**9], "data_offsets": [0, 16 * 10**9]}
    write_header(folder / "model.safetensors", {WORDS: giant}, 16 * 10**9)
    assert "has shape (4, 1000000000), but config.json implies" in error_of(folder)
    tensors = load_file(seeds.model_folder("modernbert") / "model.safetensors")
    header, end = {}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": [*tensor.shape], "data_offsets": [end, end + size]}
        end += size
    header["extra"] = {
        "dtype": "F32",
        "shape": [4 * 10**9],
        "data_offsets": [end, end + 16 * 10**9],
    }
    write_header(folder / "model.safetensors", header, end + 16 * 10**9)
    assert "tensor extra is unknown" in run_limited(_OPEN, str(folder))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**6) + b"{",
        b"PK\x03\x04" + bytes(100),
    ],
)
def test_headers_that_are_none(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert "cannot be read as safetensors" in error_of(folder)


def test_a_header_that_contradicts_itself(folder: Path) -> None:
    entries = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2**62]}}
    write_header(folder / "model.safetensors", entries, 12)
    assert "cannot be read as safetensors" in error_of(folder)


@pytest.mark.parametrize(
    "index",
    [
        "[",
        "{}",
        '{"weight_map": {"a": "../x.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
    ],
)
def test_an_index_names_files_beside_it(tmp_path: Path, index: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(seeds.split_model_folder(), folder)
    shutil.copy(seeds.model_folder("bert") / "model.safetensors", tmp_path / "x.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert "is not an index" in error_of(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": ["bert"] * 10_000},
        {"model_type": 10**4000},
        {"maskwright": {"tokenizer_fingerprint": [[[]]] * 1000}},
        {"rope_parameters": {"full_attention": {"rope_theta": float("nan")}}},
        {"local_attention": 10**30},
        {"global_attn_every_n_layers": float("inf"), "layer_types": None},
        {"vocab_size": "Infinity"},
        {"pad_token_id": -1},
    ],
)
def test_values_that_are_none(folder: Path, fields: dict[str, Any]) -> None:
    edit_config(folder, **fields)
    assert len(error_of(folder)) < 1_100


def test_outputs_that_are_not_finite_are_an_error(folder: Path) -> None:
    tiny = {"rope_type": "default", "rope_theta": 1e-300}
    thetas = {"full_attention": tiny, "sliding_attention": tiny}
    edit_config(folder, rope_parameters=thetas)
    with pytest.raises(ModelFolderError, match="no finite probabilities"):
        FillMask(folder, "cpu")("kato [MASK] mi.")
