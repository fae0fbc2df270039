"""A small part of a text that is not prepared yet, tokenized as the run would do it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from maskwright.corpus.cleaning import clean_text
from maskwright.corpus.sources import find_sources, read_source
from maskwright.runs.config import PretrainConfig
from maskwright.tokenizer.lost import PROBE_CHARACTERS, count_lost, take_probe
from maskwright.tokenizer.token_text import TokenizerStats, measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

_MAX_SOURCES = 30
_MANY_TOKENS = 5  # a word, of text without blanks


def probe_text(config: PretrainConfig) -> TokenizerStats | None:
    """Return the measures of the run's tokenizer on the beginnings of its files; None if they
    cannot be read twice, as standard input.

    A tokenizer that the run trains is trained on the probe.

    Raises:
        CorpusError: a file cannot be read.
        TokenizerError: the tokenizer loses most of the text.
    """
    texts, settings = list(_read_probe(config)), config.tokenizer
    if not texts:
        return None
    if settings.trains:
        asked = replace(settings, vocab_size=settings.replace_vocab or settings.vocab_size)
        return measure_tokenizer(train_tokenizer(texts, asked), texts)
    assert settings.path is not None
    tokenizer = Tokenizer.load(settings.path)
    count_lost(tokenizer, texts).check(is_trained=False)
    return measure_tokenizer(tokenizer, texts)


def _read_probe(config: PretrainConfig) -> Iterator[str]:
    sources = find_sources(config.text)[:_MAX_SOURCES]
    if any(source.path is None for source in sources):
        return
    for source in sources:
        documents = read_source(source, config.corpus, Counter())
        cleaned = (clean_text(document.text, Counter()) for document in documents)
        yield from take_probe(filter(None, cleaned), PROBE_CHARACTERS // len(sources))


def knows_size(config: PretrainConfig, probe: TokenizerStats) -> bool:
    """Return True if the bytes of a token are taken from the probe: of a token a letter, and of
    text without blanks, whose tokens are of another size than those of prose.
    """
    return config.tokenizer.kind == "character" or probe.fertility > _MANY_TOKENS
