"""The learner against the library's own trainer, which is deterministic for plain BPE."""

from collections import Counter

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from maskwright.tokenizer.learning import learn_merges
from tests.tokenizer.helpers import english_texts


def words_of(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())


def test_a_worked_example() -> None:
    learned = learn_merges({"low": 5, "lower": 2, "newest": 6}, sorted("lowernst"), 12, 1)
    assert learned.pairs[0] == ("w", "e")  # 8 times
    assert learned.pairs[1] == ("l", "o")  # 7 times, as (o, w), whose ids are larger
    # Then all pairs of n-e-we-s-t occur 6 times, and the smallest id is that of e.
    assert learned.tokens[8:] == ["we", "lo", "ewe", "newe"]


def test_the_same_vocabulary_as_the_library() -> None:
    texts = english_texts()
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=2, show_progress=False)
    library.train_from_iterator(texts, trainer)
    words = words_of(texts)
    learned = learn_merges(words, sorted({c for word in words for c in word}), 1500, 2)
    expected = sorted(library.get_vocab().items(), key=lambda item: item[1])
    assert learned.tokens == [token for token, _ in expected]


def test_the_same_number_of_wordpieces_as_the_library() -> None:
    texts = english_texts()[:10]
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(vocab_size=100_000, min_frequency=8, show_progress=False)
    library.train_from_iterator(texts, trainer)
    words = words_of(texts)
    alphabet = sorted({c for word in words for c in word})
    learned = learn_merges(words, alphabet, 100_000, 8, "##")
    # Ties are broken by ids, and the library's vary from run to run.
    common = set(library.get_vocab()) & set(learned.tokens)
    assert len(common) > 0.93 * len(learned.tokens)
    assert abs(library.get_vocab_size() - len(learned.tokens)) < 0.05 * len(learned.tokens)


def test_rare_pairs_are_not_merged() -> None:
    assert learn_merges({"ab": 2, "cd": 1}, list("abcd"), 100, 2).tokens == [*"abcd", "ab"]


def test_repeated_characters() -> None:
    assert learn_merges({"aaaa": 3}, ["a"], 100, 1).tokens == ["a", "aa", "aaaa"]


def test_the_prefix_marks_inner_symbols() -> None:
    learned = learn_merges({"aba": 3}, ["a", "b"], 100, 1, "##")
    assert learned.tokens == ["a", "b", "##a", "##b", "ab", "aba"]
