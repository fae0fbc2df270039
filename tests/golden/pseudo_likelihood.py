"""Models and sentences whose pseudo-log-likelihoods minicons has computed.

``python -m tests.golden.pseudo_likelihood`` writes the scores again; it needs minicons, which
nothing else here does. The models are random: right or wrong sums differ all the same.
"""

import importlib
import importlib.metadata
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from maskwright.config import from_mapping
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import open_model, save_model
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.twins import randomize

GOLDEN = Path(__file__).with_suffix(".json")
METRICS = ("original", "within_word_l2r")
TEXTS = (
    "The cats sleep.",
    "The cats sleeps.",
    "the",
    "She didn't see the ex-president's catalogue (again), did she?",
    "Antidisestablishmentarianism sleeps.",
    "Cats £ sleep!",
    "The cat that the dogs see sleeps under the tree, and the dogs sleep too.",
)
_SPECIAL = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
_WORDS = ("the", "cat", "dog", "she", "see", "sleep", "under", "tree", "and", "that", "did")
_PIECES = ("ing", "ed", "er", "tion", "ment", "ism", "log")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_SEED, _MAX_LENGTH = 0, 64


class Made(NamedTuple):
    """What a model of these tests is made of."""

    fields: dict[str, Any]
    add_special_tokens: bool


MODELS = {
    "bert": Made({**_SIZES, "preset": "bert", "intermediate_size": 48}, True),
    "eurobert": Made({**_SIZES, "preset": "eurobert", "intermediate_size": 48}, False),
}


def make_tokenizer() -> Tokenizer:
    """WordPiece over letters, a few words and pieces, so that words fall into several tokens."""
    pieces = [f"##{piece}" for piece in (*_LETTERS, *_PIECES)]
    tokens = [*_SPECIAL.values(), *".,!?'-()", *_LETTERS, *_WORDS, *pieces]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    backend = Backend(WordPiece(vocabulary, unk_token=_SPECIAL["unk"]))
    backend.normalizer = BertNormalizer(lowercase=True)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.add_special_tokens(list(_SPECIAL.values()))
    return Tokenizer(json.loads(backend.to_str()), _SPECIAL)


def make_model(name: str, tokenizer: Tokenizer) -> MaskedLanguageModel:
    """One of `MODELS`, all of its parameters random."""
    config = resolve_config(
        from_mapping(ModelConfig, MODELS[name].fields),
        vocab_size=tokenizer.vocab_size,
        max_seq_length=_MAX_LENGTH,
    )
    model = MaskedLanguageModel(config)
    randomize(model, _SEED)
    return model.eval()


def score_with_minicons(folder: Path) -> dict[str, list[list[float]]]:
    """By metric, of each text, of each token."""
    scorer: Any = importlib.import_module("minicons.scorer")
    transformers: Any = importlib.import_module("transformers")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    masked = scorer.MaskedLMScorer(theirs, "cpu", tokenizer=tokenizer)
    found: dict[str, list[list[float]]] = {}
    for metric in METRICS:
        # What its own `encode` does where transformers still has batch_encode_plus.
        prepared = masked.prepare_text(tokenizer(list(TEXTS), padding="longest"), metric)
        scores = masked.compute_stats(prepared, return_tensors=True)
        found[metric] = [text.tolist() for text in scores]
    return found


def main() -> None:
    tokenizer = make_tokenizer()
    models: dict[str, Any] = {}
    for name, made in MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / name
            model = make_model(name, tokenizer)
            save_model(folder, model, tokenizer, add_special_tokens=made.add_special_tokens)
            models[name] = {
                **made._asdict(),
                "seed": _SEED,
                "tokenizer_fingerprint": open_model(folder).tokenizer.fingerprint,
                "scores": score_with_minicons(folder),
            }
    libraries = ("minicons", "transformers", "torch")
    content = {
        "made_with": {name: importlib.metadata.version(name) for name in libraries},
        "texts": TEXTS,
        "models": models,
    }
    GOLDEN.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
