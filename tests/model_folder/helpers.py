"""A tokenizer of 64 words and folders that hold it, for the tests of model folders."""

import json
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from maskwright.tokenizer.tokenizer import Tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("the", "a", "cat", "dog", "bird", "fish", "sat", "ran", "flew", "on", "under", "tree")


def write_tokenizer(folder: Path, num_words: int = 59) -> None:
    """Writes a word-level tokenizer as transformers does, with [CLS] … [SEP] around a text."""
    words = [*WORDS, *(f"word{n}" for n in range(num_words - len(WORDS)))]
    vocabulary = {token: n for n, token in enumerate((*SPECIAL, *words))}
    backend = Backend(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = Lowercase()
    backend.pre_tokenizer = Whitespace()
    backend.add_special_tokens(list(SPECIAL))
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    names = ("pad", "unk", "cls", "sep", "mask")
    settings = {f"{name}_token": token for name, token in zip(names, SPECIAL, strict=True)}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def tiny_tokenizer(folder: Path, num_words: int = 59) -> Tokenizer:
    """The same, loaded; 64 tokens unless `num_words` says otherwise."""
    write_tokenizer(folder, num_words)
    return Tokenizer.load(folder)
