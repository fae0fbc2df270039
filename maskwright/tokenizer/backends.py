"""The four kinds of untrained tokenizers: their normalization and pre-tokenization.

====================  ==========================================  ==============================
kind                  normalization and pre-tokens                whitespace
====================  ==========================================  ==============================
``wordpiece``         BERT's (Devlin et al. 2019)                 separates words, is dropped
``bpe``               NFC; GPT-2's words, as bytes                kept: ``Ġ`` begins a word
``unigram``           NFKC; ``▁`` before words, punctuation apart  separates words, is dropped
``character``         NFC; every character                        kept
====================  ==========================================  ==============================

BERT's and GPT-2's rules were made for English. What differs from them here:

- BERT strips accents by decomposing all characters and dropping every nonspacing mark. That
  decomposes Hangul and deletes vowels of Thai and Hindi and the voicing marks of Japanese. Here
  only the marks of European scripts (U+0300 to U+036F) are dropped, and the rest is composed again.
- BERT drops all format characters. Here the zero-width (non-)joiner stays, which Persian, the
  scripts of India and emoji need, and the zero-width space separates words of scripts without
  blanks, as in `maskwright.corpus.clean`.
- WordPiece encodes a word of more than 100 characters as [UNK]. Thai, Lao, Burmese and Khmer have
  blanks between phrases only, so their runs are cut (Japanese kana as well).
- GPT-2 splits words at combining marks, which are vowels in the scripts of India. Here a mark or a
  joiner belongs to the letter before it.
"""

from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.vocabulary import SPECIAL_TOKENS
from maskwright.tokenizer.words import PHRASE_SCRIPTS, WORD_BREAK

WORDPIECE_PREFIX = "##"

# Replaced in the text of WordPiece, character by character.
ACCENTS = "[\u0300-\u036f]"
INVISIBLE = (  # and what is no character: U+FFFD, private use
    "[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ue000-\uf8ff\ufeff\ufff9-\ufffd]"
)

_LONG_RUN = f"[{PHRASE_SCRIPTS}\u3040-\u30ff].{{63}}\\p{{M}}*"
# GPT-2's regular expression, with marks and joiners after letters.
BYTE_WORDS = (
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}[\\p{L}\\p{M}\u200c\u200d]*| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+"
)

# Entities of transformers' pipelines begin at a word, not at the blank that its token includes.
BLANK_TRIMMING = {"trim_offsets": True, "add_prefix_space": True, "use_regex": False}

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
    template = TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=ids
    )
    if kind == "bpe":
        backend.post_processor = Sequence(cast(Any, [ByteLevel(**BLANK_TRIMMING), template]))
    else:
        backend.post_processor = template


def _build_normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    if config.kind == "wordpiece":
        bert = normalizers.BertNormalizer(
            clean_text=False, lowercase=config.lowercase, strip_accents=False
        )
        clean = [(WORD_BREAK, " "), (INVISIBLE, "")]
        tidy = (normalizers.Replace(Regex(old), new) for old, new in clean)
        strip = [normalizers.NFD(), normalizers.Replace(Regex(ACCENTS), "")]
        steps = [*tidy, bert, *(strip if config.lowercase else []), normalizers.NFC()]
    else:
        compose = normalizers.NFKC() if config.kind == "unigram" else normalizers.NFC()
        steps = [compose, *([normalizers.Lowercase()] if config.lowercase else [])]
    return normalizers.Sequence(steps)


def _build_pre_tokenizer(kind: TokenizerKind) -> pre_tokenizers.PreTokenizer:
    if kind == "wordpiece":
        long_runs = pre_tokenizers.Split(Regex(_LONG_RUN), "isolated")
        return pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), long_runs])
    if kind == "bpe":
        words = pre_tokenizers.Split(Regex(BYTE_WORDS), "isolated")
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([words, as_bytes])
    if kind == "unigram":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Metaspace(prepend_scheme="always"),
                pre_tokenizers.Split(Regex(r"▁?\p{P}"), "isolated"),
            ]
        )
    return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
