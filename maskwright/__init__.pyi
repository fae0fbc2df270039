# The public names and their modules, for type checkers and for `lazy_loader`.
from .adapting import finetune
from .errors import MaskwrightError
from .evaluation.compare import compare
from .evaluation.data import read_minimal_pairs
from .evaluation.pseudo_likelihood import PseudoLikelihoodScorer, score_pseudo_likelihood
from .evaluation.run import evaluate
from .evaluation.suite_blimp import evaluate_minimal_pairs
from .evaluation.suite_sentences import evaluate_pseudo_likelihood
from .finetuning.predict import Predictor, predict
from .inference.embed import Embedder, embed, search
from .inference.fill_mask import FillMask
from .interop.export import export
from .interop.publish import publish
from .model_folder.folder import load_model, save_model
from .pretraining.plan import plan
from .pretraining.prepare import prepare
from .pretraining.pretrain import pretrain
from .pretraining.watch import watch
from .runs.config import PretrainConfig
from .serving.server import serve
from .shards.reader import TokenStore
from .sweeping.experiment import experiment
from .sweeping.run import sweep
from .tokenizer.tokenizer import Tokenizer
from .tokenizer.train import train_tokenizer

__all__ = [
    "Embedder", "FillMask", "MaskwrightError", "Predictor", "PretrainConfig",
    "PseudoLikelihoodScorer", "TokenStore", "Tokenizer", "compare", "embed", "evaluate",
    "evaluate_minimal_pairs", "evaluate_pseudo_likelihood", "experiment", "export",
    "finetune", "load_model", "plan", "predict", "prepare", "pretrain", "publish",
    "read_minimal_pairs", "save_model", "score_pseudo_likelihood", "search", "serve", "sweep",
    "train_tokenizer", "watch",
]  # fmt: skip
