"""Small tokenizers that are built and written as those of published models are.

Their vocabularies are learned from a page of the standard library; all else (normalizers,
pre-tokenizers, post-processors, added tokens, the order of ids, which files say what) is as in the
folders of bert-base-uncased, roberta-base, ModernBERT-base, EuroBERT and xlm-roberta-base.
"""

import base64
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.tokenizer.helpers import CHINESE, KOREAN, MIXED, english_texts

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SIZE = 500


def _texts() -> list[str]:
    return [*english_texts(), *[KOREAN, CHINESE, MIXED] * 20]


def _special(tokens: Iterable[str], mask: str = "", normalized: bool = False) -> list[AddedToken]:
    """Special tokens, of which the mask takes the blank before it."""
    return [
        AddedToken(token, lstrip=token == mask, normalized=normalized, special=True)
        for token in tokens
    ]


def _add(backend: Tokenizer, tokens: list[AddedToken]) -> None:
    cast(Any, backend).add_tokens(tokens)


def _template(backend: Tokenizer, cls: str, sep: str, pair: str) -> None:
    ids = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    single = f"{cls}:0 $A:0 {sep}:0"
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {pair}", special_tokens=ids
    )


def _learn_bytes(backend: Tokenizer) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges of a byte-level vocabulary, in the order of learning."""
    trainer = trainers.BpeTrainer(
        vocab_size=_SIZE, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(_texts(), trainer)
    model = json.loads(backend.to_str())["model"]
    return list(model["vocab"]), [(left, right) for left, right in model["merges"]]


def _number(tokens: Iterable[str]) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(tokens)}


def _write(folder: Path, backend: Tokenizer, model_type: str, **files: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    files.setdefault("config", {"model_type": model_type})
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def write_bert(folder: Path) -> None:
    """bert-base-uncased: the files name no special tokens."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=_SIZE, show_progress=False)
    backend.train_from_iterator(_texts(), trainer)
    learned = [token for token, _ in sorted(backend.get_vocab().items(), key=lambda item: item[1])]
    head = ["[PAD]", *(f"[unused{n}]" for n in range(9)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = _number([*head, *learned])
    backend.model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    _add(backend, _special(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")))
    _template(backend, "[CLS]", "[SEP]", "$B:1 [SEP]:1")
    backend.decoder = decoders.WordPiece(prefix="##")
    _write(folder, backend, "bert", tokenizer_config={"do_lower_case": True})
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")


def write_roberta(folder: Path) -> None:
    """roberta-base: as sparing of words; the mask is the last token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens, merges = _learn_bytes(backend)
    vocabulary = _number(["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"])
    backend.model = models.BPE(vocabulary, merges)
    names = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    _add(backend, _special(names, mask="<mask>"))
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"]), True, False
    )
    backend.decoder = decoders.ByteLevel()
    _write(folder, backend, "roberta", tokenizer_config={"model_max_length": 512})


def write_modernbert(folder: Path) -> None:
    """ModernBERT-base: added tokens behind the vocabulary, objects that describe the special ones.

    So also `added_tokens.json` and `special_tokens_map.json`, which old folders have.
    """
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens, merges = _learn_bytes(backend)
    first = ["<|padding|>", "<|endoftext|>"]
    backend.model = models.BPE(_number([*first, *tokens]), merges)
    _add(backend, [AddedToken("|||IP_ADDRESS|||", normalized=True)])
    _add(backend, _special(first))
    _add(backend, [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    roles = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    _add(backend, _special(roles.values(), mask="[MASK]"))
    _add(backend, [AddedToken(f"[unused{n}]", normalized=True) for n in range(9)])
    _template(backend, "[CLS]", "[SEP]", "$B:0 [SEP]:0")
    backend.decoder = decoders.ByteLevel()
    described = {
        f"{role}_token": {
            "content": token, "lstrip": role == "mask", "normalized": False,
            "rstrip": False, "single_word": False,
        }
        for role, token in roles.items()
    }  # fmt: skip
    added = json.loads(backend.to_str())["added_tokens"]
    settings = {
        **{f"{role}_token": token for role, token in roles.items()},
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {
            str(token["id"]): {name: value for name, value in token.items() if name != "id"}
            for token in added
        },
    }
    _write(
        folder, backend, "modernbert", tokenizer_config=settings, special_tokens_map=described,
        added_tokens={token["content"]: token["id"] for token in added},
    )  # fmt: skip


def write_eurobert(folder: Path) -> None:
    """EuroBERT: Llama 3's tokenizer with a mask; its end of text is also its padding."""
    backend = Tokenizer(models.BPE(ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokens, merges = _learn_bytes(backend)
    backend.model = models.BPE(_number(tokens), merges, ignore_merges=True)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"]
    names += [f"<|reserved_special_token_{n}|>" for n in range(5)]
    _add(backend, _special(names, mask="<|mask|>"))
    _template(backend, "<|begin_of_text|>", "<|end_of_text|>", "$B:1 <|end_of_text|>:1")
    backend.decoder = decoders.ByteLevel()
    settings = {
        "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "mask_token": "<|mask|>",
        "pad_token": "<|end_of_text|>", "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 8192,
    }  # fmt: skip
    _write(folder, backend, "eurobert", tokenizer_config=settings)


def write_xlm_roberta(folder: Path) -> None:
    """xlm-roberta-base: SentencePiece's Unigram, whose vocabulary has special tokens in it."""
    backend = Tokenizer(models.Unigram())
    # A table that changes nothing: a trie without a single path, and no replacements.
    table = struct.pack("<I", 1024) + bytes(1024)
    precompiled = {
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()
    }  # fmt: skip
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    trainer = trainers.UnigramTrainer(vocab_size=_SIZE, show_progress=False, unk_token="<unk>")
    backend.train_from_iterator(_texts(), trainer)
    learned = [pair for pair in json.loads(backend.to_str())["model"]["vocab"] if pair[1] < 0]
    head = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*head, *map(tuple, learned), ("<mask>", 0.0)]
    backend.model = models.Unigram(pieces, 3, False)
    _add(backend, _special(("<s>", "<pad>", "</s>", "<unk>", "<mask>"), mask="<mask>"))
    _template(backend, "<s>", "</s>", "</s>:0 $B:0 </s>:0")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    description = {**json.loads(backend.to_str()), "normalizer": precompiled}
    backend = Tokenizer.from_str(json.dumps(description))
    _write(folder, backend, "xlm-roberta", tokenizer_config={"model_max_length": 512})


PUBLISHED: dict[str, Callable[[Path], None]] = {
    "bert": write_bert,
    "roberta": write_roberta,
    "modernbert": write_modernbert,
    "eurobert": write_eurobert,
    "xlm-roberta": write_xlm_roberta,
}
