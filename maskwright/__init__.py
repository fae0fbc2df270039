"""Raw text to a BERT-class encoder of your own.

The names below are the whole public interface; a test pins them. They are imported when they are
first used, because torch takes two seconds to import and many commands do without it::

    from maskwright import FillMask, pretrain

    folder = pretrain("corpus/*.txt", recipe="tiny", out="runs/mine", train={"max_minutes": 10})
    print(FillMask(folder)("The larvae are black and [MASK] on snails."))
"""

import importlib
from typing import TYPE_CHECKING, Any

from maskwright.errors import MaskwrightError

if TYPE_CHECKING:
    from maskwright.artifact.folder import load_model, save_model
    from maskwright.commands.config import PretrainConfig
    from maskwright.commands.run import pretrain
    from maskwright.inference.embed import Embedder
    from maskwright.inference.fill_mask import FillMask
    from maskwright.preparation.pipeline import prepare
    from maskwright.shards.reader import TokenStore
    from maskwright.tokenizer.tokenizer import Tokenizer
    from maskwright.tokenizer.train import train_tokenizer

__all__ = [
    "Embedder",
    "FillMask",
    "MaskwrightError",
    "PretrainConfig",
    "TokenStore",
    "Tokenizer",
    "load_model",
    "prepare",
    "pretrain",
    "save_model",
    "train_tokenizer",
]

_HOMES = {
    "Embedder": "maskwright.inference.embed",
    "FillMask": "maskwright.inference.fill_mask",
    "PretrainConfig": "maskwright.commands.config",
    "TokenStore": "maskwright.shards.reader",
    "Tokenizer": "maskwright.tokenizer.tokenizer",
    "load_model": "maskwright.artifact.folder",
    "prepare": "maskwright.preparation.pipeline",
    "pretrain": "maskwright.commands.run",
    "save_model": "maskwright.artifact.folder",
    "train_tokenizer": "maskwright.tokenizer.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'maskwright' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
