"""A small encoder with random weights, and tasks that it can learn in seconds."""

import random
from pathlib import Path

from maskwright.config import from_mapping
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import Loaded
from maskwright.tokenizer.template import wrap_inputs
from tests.golden.pseudo_likelihood import make_tokenizer

TOKENIZER = wrap_inputs(make_tokenizer(), wrap=True)
NOUNS = {"cat": "animal", "dog": "animal", "x-ray": "thing"}


def make_loaded() -> Loaded[MaskedLanguageModel]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    fields = {**sizes, "preset": "bert", "intermediate_size": 48, "initializer_range": 0.1}
    config = resolve_config(
        from_mapping(ModelConfig, fields), vocab_size=TOKENIZER.vocab_size, max_seq_length=64
    )
    model = MaskedLanguageModel(config)
    initialize(model, seed=0)
    return Loaded(model, TOKENIZER, add_special_tokens=True)


def write_nouns(path: Path, count: int = 200) -> Path:
    """Sentences with a noun, labeled by what it is."""
    draw = random.Random(count)
    lines = ["sentence1\tsentence2\tlabel\tvalue"]
    for _ in range(count):
        noun = draw.choice(sorted(NOUNS))
        before, after = (draw.choices(["the", "sees", "and"], k=draw.randint(1, 4)) for _ in "ab")
        text = " ".join([*before, noun, *after])
        second = draw.choice(["the", "sees"])
        lines.append(f"{text}\t{second}\t{NOUNS[noun]}\t{text.count('the')}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_tags(path: Path, count: int = 120) -> Path:
    """Sentences whose nouns are tagged."""
    draw = random.Random(count)
    blocks: list[str] = []
    for _ in range(count):
        words = [draw.choice(["the", "sees", *NOUNS]) for _ in range(draw.randint(2, 9))]
        blocks.append("\n".join(f"{w} {'I-' + NOUNS[w] if w in NOUNS else 'O'}" for w in words))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return path
