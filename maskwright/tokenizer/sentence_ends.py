"""Tokens that end a sentence."""

from maskwright.tokenizer.tokenizer import Tokenizer

SENTENCE_ENDS = frozenset((".", "!", "?", "\u3002", "\uff01", "\uff1f"))


def find_sentence_ends(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of tokens that are the end mark of a sentence.

    A mark that the tokenizer spells in several byte tokens has no such id, because its last byte
    also ends letters.
    """
    last = (tokenizer.encode(end).ids[-1:].tolist() for end in SENTENCE_ENDS)
    return frozenset(
        token_id
        for ids in last
        for token_id in ids
        if token_id != tokenizer.unk_id and tokenizer.decode([token_id]).strip() in SENTENCE_ENDS
    )
