"""The four kinds of untrained tokenizers: their normalization and pre-tokenization.

====================  ==========================================  ==============================
kind                  normalization and pre-tokens                whitespace
====================  ==========================================  ==============================
``wordpiece``         BERT's (Devlin et al. 2019)                 separates words, is dropped
``bpe``               NFC; GPT-2's regular expression on bytes    kept: ``Ġ`` begins a word
``unigram``           NFKC; ``▁`` before words, punctuation apart  separates words, is dropped
``character``         NFC; every character                        kept
====================  ==========================================  ==============================

One detail differs from BERT, which strips accents by decomposing all characters and dropping every
nonspacing mark. That decomposes Hangul and deletes vowels of Thai and Hindi and the voicing marks
of Japanese. Here only the marks of European scripts (U+0300 to U+036F) are dropped, and the rest is
composed again.
"""

from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.vocabulary import SPECIAL_TOKENS

WORDPIECE_PREFIX = "##"

Model = models.WordPiece | models.BPE | models.Unigram | models.WordLevel


def build_backend(config: TokenizerConfig) -> Tokenizer:
    """Return a tokenizer of the configured kind with an empty model, ready to prepare text for
    training.
    """
    empty: dict[TokenizerKind, Model] = {
        "wordpiece": models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]),
        "bpe": models.BPE(),
        "unigram": models.Unigram(),
        "character": models.WordLevel(unk_token=SPECIAL_TOKENS["unk"]),
    }
    backend = Tokenizer(empty[config.kind])
    backend.normalizer = _build_normalizer(config)
    backend.pre_tokenizer = _build_pre_tokenizer(config.kind)
    decoder = {
        "wordpiece": decoders.WordPiece(prefix=WORDPIECE_PREFIX),
        "bpe": decoders.ByteLevel(),
        "unigram": decoders.Metaspace(),
        "character": decoders.Fuse(),
    }
    backend.decoder = decoder[config.kind]
    return backend


def install_model(backend: Tokenizer, model: Model, kind: TokenizerKind) -> None:
    """Set the trained model of `backend`; its first five tokens are the special ones."""
    backend.model = model
    for token in SPECIAL_TOKENS.values():
        # In byte-level BPE the blank before a word belongs to it, so [MASK] includes it too.
        takes_blank = kind == "bpe" and token == SPECIAL_TOKENS["mask"]
        cast(Any, backend).add_special_tokens([AddedToken(token, lstrip=takes_blank, special=True)])
    cls, sep = SPECIAL_TOKENS["cls"], SPECIAL_TOKENS["sep"]
    ids = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    backend.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=ids
    )


def _build_normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    if config.kind == "wordpiece":
        bert = normalizers.BertNormalizer(lowercase=config.lowercase, strip_accents=False)
        strip = [normalizers.NFD(), normalizers.Replace(Regex("[\u0300-\u036f]"), "")]
        steps = [bert, *(strip if config.lowercase else []), normalizers.NFC()]
    else:
        compose = normalizers.NFKC() if config.kind == "unigram" else normalizers.NFC()
        steps = [compose, *([normalizers.Lowercase()] if config.lowercase else [])]
    return normalizers.Sequence(steps)


def _build_pre_tokenizer(kind: TokenizerKind) -> pre_tokenizers.PreTokenizer:
    if kind == "wordpiece":
        return pre_tokenizers.BertPreTokenizer()
    if kind == "bpe":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "unigram":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Metaspace(prepend_scheme="always"),
                pre_tokenizers.Split(Regex(r"▁?\p{P}"), "isolated"),
            ]
        )
    return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
