"""Ends of sentences in text, and the tokens that are one."""

import re

from maskwright.tokenizer.tokenizer import Tokenizer

SENTENCE_ENDS = frozenset((".", "!", "?", "\u3002", "\uff01", "\uff1f"))

# A mark and its closing quotes and brackets, then a blank, which CJK text has none of; or a line
# end. The group is the first character of what follows, behind opening quotes and brackets.
_NARROW, _WIDE = (
    "".join(sorted(e for e in SENTENCE_ENDS if e.isascii() is i)) for i in (True, False)
)
_CLOSING = r"[\"')\]\u2019\u201d\u00bb\u300d\u300f\u3011\uff09]*+"
_OPENING = r"[\"'(\[\u2018\u201c\u00ab\u00bf\u00a1\u300c\u300e\u3010\uff08]*"
_END = re.compile(
    rf"(?:(?<=[{_NARROW}]){_CLOSING}\s+|(?<=[{_WIDE}]){_CLOSING}\s*|\n\s*)(?={_OPENING}(\S))"
)
# Titles, initials and common abbreviations of English end in a stop that ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'.])(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|Rev|Gen|Col|Capt|Lt|Sgt|Gov|Sen|Rep|Jr|Sr|No|Vol"
    r"|vs|etc|cf|e\.g|i\.e|c|ca|approx|Inc|Ltd|Co|Corp|Mt|Ft|al|pp?|ed|eds|fl|d|b|r)\.$"
)
_LONGEST_ABBREVIATION = 16  # characters, with the one before it


def cut_sentences(text: str) -> list[str]:
    """Return the sentences of `text` in order, without the whitespace between them.

    A sentence ends after one of `SENTENCE_ENDS`, unless this is the stop of an English
    abbreviation, and at a line end. No sentence begins with a lowercase letter or one of the marks.
    """
    text, sentences, start = text.rstrip(), list[str](), 0  # else the regex backtracks at the end
    for end in _END.finditer(text):
        stop = end.start() + len(end.group().rstrip())  # after closing quotes and brackets
        before = text[max(start, stop - _LONGEST_ABBREVIATION) : stop]
        is_stop = "\n" not in end.group() and _ABBREVIATION.search(before)
        if not (is_stop or end[1].islower() or end[1] in SENTENCE_ENDS):
            sentences.append(text[start:stop].strip())
            start = end.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


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
