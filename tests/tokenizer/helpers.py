"""Text and trained tokenizers for the tests of this package."""

from functools import cache
from pydoc_data.topics import topics

from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

KINDS: tuple[TokenizerKind, ...] = ("wordpiece", "bpe", "unigram", "character")

KOREAN = "수학에서 실수는 주로 실직선 위의 점 또는 십진법 전개로 표현되는 수 체계이다.\n"
CHINESE = "实数是有理数和无理数的总称。数学上，实数定义为与数轴上的点相对应的数。\n"
MIXED = "Naïve Café-Ångström 東京タワー สวัสดี Привет, мир! it's 3.14€ (don't) 😀 x_y\n"


@cache
def english_texts() -> list[str]:
    """Some 90 kB of English: the language reference in the standard library."""
    texts = [topics[name].strip() for name in sorted(topics)]
    return texts[:25]


@cache
def trained(kind: TokenizerKind, lowercase: bool = True) -> Tokenizer:
    """A small tokenizer for English, with some Korean, Chinese and more in its sample."""
    texts = [*english_texts(), *[KOREAN, CHINESE, MIXED] * 20]
    return train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=768, lowercase=lowercase))
