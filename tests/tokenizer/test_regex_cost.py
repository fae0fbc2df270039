import re

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from maskwright.tokenizer import train, words
from maskwright.tokenizer.regex_cost import MAX_PATTERN_CHARACTERS, check_pattern
from tests.tokenizer.published import LLAMA_3

_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# As in the files of published tokenizers, and of ours.
PUBLISHED = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama 3, eurobert": LLAMA_3,
    "llama 3": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_ENDS}",
    "numbers": r"\d{1,3}(?:[.,]\d+)*",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]"
    r"|[^\s\p{L}\p{N}]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
    rf"[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_ENDS}",
    "deepseek, signs": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "deepseek, han": "[一-龥ࠀ-一가-퟿]+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t)?"
    rf"|\p{{N}}{{1,3}}|{_ENDS}",
    "blanks": " {2,}",
    "white space": r"\s+",
    "falcon": "[0-9][0-9][0-9]",
    "lines": r"[\r\n]",
    "quotes": "``|''",
    "clusters": r"\X",
    "characters": r"[\s\S]",
    "marks": words.ACCENTS,
    "invisible": words.INVISIBLE,
    "word breaks": words.WORD_BREAK,
    "bytes": words.BYTE_WORDS,
    "comments": r"a(?#of (\))b|(?#)(?#2)c",
    "long runs": train._LONG_RUN,
    "phrases": r"▁?\p{P}",
}
# Linear in most texts, quadratic in a run of one character.
QUADRATIC = {
    "smiles": r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*"
    r"|\$|\%[0-9]{2}|[0-9])",
    "digits from the right": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    "end of line": r"\s+$",
    "until": "a+b",
    "until, lazy": ".*?x",
    "markup": "<[^>]*>",
    "look ahead": "(?=.*x)",
    "sentences": r"(?:\p{L}+ )*\.",
    "nothing before": "x*y",
    "addresses": r"\S+@\S+",
}
REFUSED = [
    "(x+x+)+y", "(a+)+b", "(a|a)*b", "(a*)*b", "a+a+b", ".*foo.*bar", r"(.)\1", r"(\w+\s?)*$",
    "((a{1000}){1000}){1000}", "a?" * 30 + "a" * 30, "(?:a|ab|abc)*d", r"^(\w+\d+)+-", "(?R)",
    "(a{1,100}){1,100}b", "(?:(?:a+)b?)*c", r"\g<0>", "[a-z]+[0-9a-z]*_", "(a?){50}b",
    "[ab]{2,}[bc]{2,}d", "(?~abc)", "a{1,90}b{1,90}" * 3, "a+(?=.*x)", "(?:(?:a+)+b)+",
    "(?=(a+)+b)", r"\p{L}+[\u0041-\u005a]+1", "(?i:a+)A+b", r"[[:alpha:]]+\p{Lu}+1", "(a|b|ab)+c",
    "[一-龥]+[三-二]+x", r"\x{61}+a+b", "a++a++b", "a{2,}a{2,}b", "(?:a{1,200}){2}b", "(?:a+b*)*c",
    "(a(?#one)+)+b", "(a+(?#two)(?#three))*b", "a+(?#))a+b",
    "(" * 60 + ")" * 60,    "[" * 60 + "a" + "]" * 60, "x" * (MAX_PATTERN_CHARACTERS + 1),
]  # fmt: skip
UNKNOWN = [
    "(",
    ")",
    "[a",
    "*a",
    "a{,}",
    r"\p{Nope}",
    r"\q",
    "(?P<a>b)",
    "\\",
    "(?x) a",
    r"\k<a>",
    "",
]


@pytest.mark.parametrize("name", PUBLISHED)
def test_patterns_of_published_tokenizers_are_linear(name: str) -> None:
    cost = check_pattern(PUBLISHED[name])
    assert not cost.is_quadratic
    assert cost.least >= 1


def test_the_mark_of_text_without_blanks_costs_nothing() -> None:
    assert not check_pattern(words.TOKEN_WORDS).is_quadratic


@pytest.mark.parametrize("name", QUADRATIC)
def test_what_is_tried_again_at_every_place_is_quadratic(name: str) -> None:
    assert check_pattern(QUADRATIC[name]).is_quadratic


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_may_take_longer_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"^(it|its|two|a) "):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", UNKNOWN)
def test_syntax_that_is_not_known_is_refused(pattern: str) -> None:
    if pattern:
        with pytest.raises(ValueError, match=r"^it "):
            check_pattern(pattern)
    else:
        assert check_pattern(pattern).least == 0


@pytest.mark.parametrize(
    ("pattern", "least"),
    [("", 0), ("a*", 0), ("a|bc", 1), ("ab+", 2), ("(?:ab){3,}", 6), ("(?=a)", 0), (r"\s?x", 1)],
)
def test_the_least_match(pattern: str, least: int) -> None:
    assert check_pattern(pattern).least == least


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_library_reads_what_is_checked(name: str) -> None:
    """Each pattern is one of the library's, so that the list above is of what there is."""
    text = "The 12,345 Käfer's\n\n  [a] 日本 (x)"
    pieces = Split(Regex(PUBLISHED[name]), "isolated").pre_tokenize_str(text)
    assert "".join(piece for piece, _ in pieces) == text
    assert re.sub(r"\s", "", text)
