"""Which tokens end a sentence: those that spell its end, and no byte of another character."""

from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.sentence_ends import find_sentence_ends
from maskwright.tokenizer.train import train_tokenizer

ENGLISH = ["the cat sleeps . the dog sees it ! does it ?", "cats sleep."] * 20


def test_marks_of_a_vocabulary_are_found() -> None:
    tokenizer = train_tokenizer(ENGLISH, TokenizerConfig(vocab_size=46))
    ends = find_sentence_ends(tokenizer)
    assert {tokenizer.token(token_id) for token_id in ends} == {".", "!", "?"}


def test_the_last_byte_of_a_mark_is_none() -> None:
    tokenizer = train_tokenizer(ENGLISH, TokenizerConfig(kind="bpe", vocab_size=280))
    bytes_of_stop = tokenizer.encode("\u3002").ids.tolist()
    ends = find_sentence_ends(tokenizer)
    assert len(bytes_of_stop) > 1  # the text had none
    assert ends
    assert not ends & set(bytes_of_stop)
