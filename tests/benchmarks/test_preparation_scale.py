"""Copies of the text are unlike one another."""

from benchmarks.preparation_scale import change_words


def test_changed_copies_share_few_runs_of_words() -> None:
    original = " ".join(f"w{n}" for n in range(400))
    assert change_words(original, 0) == original

    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[n : n + 5]) for n in range(len(words) - 4)}

    copies = [runs(change_words(original, copy).split()) for copy in range(4)]
    for number, one in enumerate(copies):
        for other in copies[:number]:
            assert len(one & other) / len(one | other) < 0.4
    assert set(change_words(original, 3).split()) <= set(original.split())
