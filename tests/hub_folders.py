"""Model folders as transformers writes them: tiny, with random weights, and real tokenizers."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForMaskedLM

from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.published import PUBLISHED

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
TWINS = ("bert", "roberta", "modernbert", "eurobert", "xlm-roberta")


def write_twin(folder: Path, model_type: str, **fields: Any) -> Path:
    """A model of this family with the tokenizer of its best-known member."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _make_files(model_type, json.dumps(fields)).items():
        (folder / name).write_bytes(content)
    return folder


@cache
def _make_files(model_type: str, fields: str) -> dict[str, bytes]:
    with TemporaryDirectory() as place:
        folder = Path(place)
        PUBLISHED[model_type](folder)
        tokenizer = Tokenizer.load(folder)
        ids = {"pad": tokenizer.pad_id, "cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
        ids |= {"bos": tokenizer.cls_id, "eos": tokenizer.sep_id, "mask": tokenizer.mask_id}
        numbers = {f"{role}_token_id": token_id for role, token_id in ids.items()}
        values = {"vocab_size": tokenizer.vocab_size, **_SIZES, **numbers, **json.loads(fields)}
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, **values)
        AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_twin(folder: Path) -> Any:
    """The folder's model in transformers."""
    transformers.logging.disable_progress_bar()
    return AutoModelForMaskedLM.from_pretrained(str(folder))
