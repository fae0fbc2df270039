"""Raw text to a BERT-class encoder of your own.

The names below are the whole public interface; a test pins them. They are imported when they are
first used, because torch takes two seconds to import and many commands do without it::

    from maskwright import FillMask, pretrain

    folder = pretrain("corpus/*.txt", recipe="tiny", out="runs/mine", train={"max_minutes": 10})
    print(FillMask(folder)("The larvae are black and [MASK] on snails."))

`pretrain`, `prepare`, `finetune`, `predict`, `evaluate`, `compare`, `serve`, `export` and `publish`
do what the commands of these names do, and take the same words as their flags; the classes are for
models in memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

from maskwright.errors import MaskwrightError

if TYPE_CHECKING:
    from maskwright.evaluation.compare import compare
    from maskwright.evaluation.minimal_pairs import read_minimal_pairs
    from maskwright.evaluation.pseudo_likelihood import (
        PseudoLikelihoodScorer,
        score_pseudo_likelihood,
    )
    from maskwright.evaluation.run import evaluate
    from maskwright.evaluation.suite_blimp import evaluate_minimal_pairs
    from maskwright.evaluation.suite_pll import evaluate_pseudo_likelihood
    from maskwright.finetuning.predict import Predictor, predict
    from maskwright.finetuning.run import finetune
    from maskwright.inference.embed import Embedder, embed
    from maskwright.inference.fill_mask import FillMask
    from maskwright.interop.export import export
    from maskwright.interop.publish import publish
    from maskwright.model_folder.folder import load_model, save_model
    from maskwright.pretraining.prepare import prepare
    from maskwright.pretraining.run import pretrain
    from maskwright.pretraining.watch import watch
    from maskwright.runs.config import PretrainConfig
    from maskwright.serving.server import serve
    from maskwright.shards.reader import TokenStore
    from maskwright.tokenizer.tokenizer import Tokenizer
    from maskwright.tokenizer.train import train_tokenizer

__all__ = [
    "Embedder", "FillMask", "MaskwrightError", "Predictor", "PretrainConfig",
    "PseudoLikelihoodScorer", "TokenStore", "Tokenizer", "compare", "embed", "evaluate",
    "evaluate_minimal_pairs", "evaluate_pseudo_likelihood", "export", "finetune", "load_model",
    "predict", "prepare", "pretrain", "publish", "read_minimal_pairs", "save_model",
    "score_pseudo_likelihood", "serve", "train_tokenizer", "watch",
]  # fmt: skip

_HOMES = {
    "Embedder": "maskwright.inference.embed",
    "FillMask": "maskwright.inference.fill_mask",
    "Predictor": "maskwright.finetuning.predict",
    "PretrainConfig": "maskwright.runs.config",
    "PseudoLikelihoodScorer": "maskwright.evaluation.pseudo_likelihood",
    "TokenStore": "maskwright.shards.reader",
    "Tokenizer": "maskwright.tokenizer.tokenizer",
    "compare": "maskwright.evaluation.compare",
    "embed": "maskwright.inference.embed",
    "evaluate": "maskwright.evaluation.run",
    "evaluate_minimal_pairs": "maskwright.evaluation.suite_blimp",
    "evaluate_pseudo_likelihood": "maskwright.evaluation.suite_pll",
    "export": "maskwright.interop.export",
    "finetune": "maskwright.finetuning.run",
    "load_model": "maskwright.model_folder.folder",
    "predict": "maskwright.finetuning.predict",
    "prepare": "maskwright.pretraining.prepare",
    "pretrain": "maskwright.pretraining.run",
    "publish": "maskwright.interop.publish",
    "read_minimal_pairs": "maskwright.evaluation.minimal_pairs",
    "save_model": "maskwright.model_folder.folder",
    "score_pseudo_likelihood": "maskwright.evaluation.pseudo_likelihood",
    "serve": "maskwright.serving.server",
    "train_tokenizer": "maskwright.tokenizer.train",
    "watch": "maskwright.pretraining.watch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'maskwright' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
