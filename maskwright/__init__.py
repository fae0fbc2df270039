"""Raw text to a BERT-class encoder of your own.

The names below are the whole public interface; a test pins them. They are imported when they are
first used, because torch takes two seconds to import and many commands do without it::

    from maskwright import FillMask, pretrain

    folder = pretrain("corpus/*.txt", recipe="tiny", out="runs/mine", train={"max_minutes": 10})
    print(FillMask(folder)("The larvae are black and [MASK] on snails."))

`pretrain`, `prepare`, `finetune`, `predict`, `evaluate`, `compare` and `serve` do what the commands
of these names do, and take the same words as their flags; the classes are for models in memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

from maskwright.errors import MaskwrightError

if TYPE_CHECKING:
    from maskwright.cli.compare import compare
    from maskwright.cli.evaluate import evaluate
    from maskwright.cli.prepare import prepare
    from maskwright.cli.serve import serve
    from maskwright.evaluation.minimal_pairs import evaluate_minimal_pairs, read_minimal_pairs
    from maskwright.evaluation.pseudo_likelihood import score_pseudo_likelihood
    from maskwright.evaluation.pseudo_perplexity import evaluate_pseudo_likelihood
    from maskwright.finetuning.predict import Predictor, predict
    from maskwright.finetuning.run import finetune
    from maskwright.inference.embed import Embedder
    from maskwright.inference.fill_mask import FillMask
    from maskwright.interop.export import export_model
    from maskwright.interop.publish import publish_model
    from maskwright.model_folder.folder import load_model, save_model
    from maskwright.pretraining.runner import pretrain
    from maskwright.runs.config import PretrainConfig
    from maskwright.shards.reader import TokenStore
    from maskwright.tokenizer.tokenizer import Tokenizer
    from maskwright.tokenizer.train import train_tokenizer

__all__ = [
    "Embedder",
    "FillMask",
    "MaskwrightError",
    "Predictor",
    "PretrainConfig",
    "TokenStore",
    "Tokenizer",
    "compare",
    "evaluate",
    "evaluate_minimal_pairs",
    "evaluate_pseudo_likelihood",
    "export_model",
    "finetune",
    "load_model",
    "predict",
    "prepare",
    "pretrain",
    "publish_model",
    "read_minimal_pairs",
    "save_model",
    "score_pseudo_likelihood",
    "serve",
    "train_tokenizer",
]

_HOMES = {
    "Embedder": "maskwright.inference.embed",
    "FillMask": "maskwright.inference.fill_mask",
    "Predictor": "maskwright.finetuning.predict",
    "PretrainConfig": "maskwright.runs.config",
    "TokenStore": "maskwright.shards.reader",
    "Tokenizer": "maskwright.tokenizer.tokenizer",
    "compare": "maskwright.cli.compare",
    "evaluate": "maskwright.cli.evaluate",
    "evaluate_minimal_pairs": "maskwright.evaluation.minimal_pairs",
    "evaluate_pseudo_likelihood": "maskwright.evaluation.pseudo_perplexity",
    "export_model": "maskwright.interop.export",
    "finetune": "maskwright.finetuning.run",
    "load_model": "maskwright.model_folder.folder",
    "predict": "maskwright.finetuning.predict",
    "prepare": "maskwright.cli.prepare",
    "pretrain": "maskwright.pretraining.runner",
    "publish_model": "maskwright.interop.publish",
    "read_minimal_pairs": "maskwright.evaluation.minimal_pairs",
    "save_model": "maskwright.model_folder.folder",
    "score_pseudo_likelihood": "maskwright.evaluation.pseudo_likelihood",
    "serve": "maskwright.cli.serve",
    "train_tokenizer": "maskwright.tokenizer.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'maskwright' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
