"""Small valid files, made by maskwright itself, for the fuzzer to change."""

import atexit
import bz2
import csv
import gzip
import io
import json
import lzma
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
import zstandard
from safetensors.torch import save_file

from maskwright.config import from_mapping, write_yaml
from maskwright.data.rows import DataPosition
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import save_model
from maskwright.model_folder.weights import INDEX, WEIGHTS
from maskwright.preparation.config import PrepareConfig
from maskwright.preparation.pipeline import prepare_folder
from maskwright.recipes import list_recipes
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer
from maskwright.train.checkpoint import WHOLE, seal
from maskwright.train.state import TrainState

_SYLLABLES = ["ka", "to", "mi", "ren", "su", "lo", "vi", "nar", "pe", "dol"]
KINDS: tuple[TokenizerKind, ...] = ("wordpiece", "bpe", "unigram", "character")
# Of a checkpoint small enough to be changed everywhere.
CHECKPOINT_SHAPES = {"model/a": (3, 2), "optimizer/b": (4,)}


@cache
def scratch() -> Path:
    """Return a folder, in memory if possible, that is removed with the process."""
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def fresh_folder(name: str) -> Path:
    """Return a new empty folder in the scratch folder."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch()))


@cache
def documents() -> Sequence[str]:
    draw = random.Random(0)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(60)]
    return [" ".join(draw.choices(words, k=draw.randint(3, 30))) + "." for _ in range(80)]


def plain_text() -> bytes:
    return "\n\n".join([*documents()[:8], "Größe 東京 e\u0301"]).encode()


def json_lines() -> bytes:
    return b"".join(json.dumps({"id": n, "text": t}).encode() + b"\n" for n, t in _numbered(8))


def table(delimiter: str) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([("id", "text"), *_numbered(8), (8, 'a "quoted"\nline, and more')])
    return file.getvalue().encode()


def _numbered(count: int) -> list[tuple[int, str]]:
    return list(enumerate(documents()[:count]))


def packed_texts() -> dict[str, bytes]:
    """Return the same plain text under every compression, by suffix."""
    text = plain_text()
    return {
        ".gz": gzip.compress(text),
        ".bz2": bz2.compress(text),
        ".xz": lzma.compress(text),
        ".zst": zstandard.compress(text),
    }


def parquet_files() -> list[bytes]:
    """Return two Parquet files, of plain strings and of a dictionary; none without pyarrow."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        return []
    files: list[bytes] = []
    for compression, version in (("zstd", "1.0"), ("snappy", "2.0")):
        file = io.BytesIO()
        columns = arrow.table({"id": list(range(12)), "text": [*documents()[:6]] * 2})
        parquet.write_table(
            columns, file, compression=compression, data_page_version=version, row_group_size=5
        )
        files.append(file.getvalue())
    return files


@cache
def tokenizer(kind: TokenizerKind) -> Tokenizer:
    size = {"bpe": 272, "unigram": 48}.get(kind, 64)
    config = TokenizerConfig(kind=kind, vocab_size=size, min_frequency=1)
    return train_tokenizer(documents(), config)


@cache
def data_folder() -> Path:
    """Return a prepared folder with two shards."""
    folder = fresh_folder("data")
    (folder / "words.txt").write_text("\n\n".join(documents()), encoding="utf-8")
    config = PrepareConfig(
        tokenizer=TokenizerConfig(vocab_size=96, min_frequency=1), block_megabytes=1, workers=1
    )
    prepare_folder([str(folder / "words.txt")], folder / "out", config)
    return folder / "out"


@cache
def model_folder(preset: str) -> Path:
    """Return a model folder of one layer."""
    words = tokenizer("wordpiece")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = resolve_config(
        from_mapping(ModelConfig, {**sizes, "preset": preset, "intermediate_size": 8}),
        vocab_size=words.vocab_size,
        max_seq_length=32,
        pad_token_id=words.pad_id,
        cls_token_id=words.cls_id,
        sep_token_id=words.sep_id,
        mask_token_id=words.mask_id,
    )
    model = MaskedLanguageModel(config)
    initialize(model, 0)
    folder = fresh_folder("model") / preset
    save_model(folder, model, words)
    return folder


def split_model_folder() -> Path:
    """Return a model folder with an index that names the file of the weights."""
    folder = fresh_folder("parts") / "model"
    shutil.copytree(model_folder("modernbert"), folder)
    part = "model-00001-of-00001.safetensors"
    (folder / WEIGHTS).rename(folder / part)
    index = {"metadata": {}, "weight_map": {"model.embeddings.tok_embeddings.weight": part}}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    return folder


def checkpoint_folder() -> Path:
    """Return a checkpoint whose tensors belong to no model."""
    folder = fresh_folder("run") / "checkpoints" / "step_00000005"
    folder.mkdir(parents=True)
    tensors = {name: torch.ones(shape) for name, shape in CHECKPOINT_SHAPES.items()}
    save_file(tensors, folder / WHOLE)
    seal(folder, TrainState(DataPosition(32), step=5, tokens=640).to_json())
    return folder


def configurations() -> list[bytes]:
    """Return configurations as users and as runs write them."""
    short = b"recipe: tiny\ntrain:\n  max_minutes: 5\n  batch_tokens_schedule: [0:2048, 0.5:4096]\n"
    recipes = [write_yaml(recipe.values).encode() for recipe in list_recipes()]
    return [short, *recipes]
